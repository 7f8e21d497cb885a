type SerialQueue = {
  /** Runs the task after all earlier tasks, even if one of them failed. */
  run<Result>(task: () => Promise<Result>): Promise<Result>
  /** Resolves when every task that was added so far has ended. Never rejects. */
  idle(): Promise<void>
}

/**
 * Runs tasks one after the other, in the order in which they were added. The queue has no limit.
 */
export function createSerialQueue(): SerialQueue {
  let tail: Promise<unknown> = Promise.resolve()
  return {
    run: (task) => {
      const result = tail.then(task)
      tail = result.catch(() => undefined)
      return result
    },
    idle: async () => {
      await tail
    },
  }
}
