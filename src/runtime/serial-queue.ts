/** Runs tasks one after the other, in the order in which they were added. */
type SerialQueue = {
  /**
   * Returns the result of the task, or rejects with its error. The next task runs even after a
   * failure.
   */
  run<Result>(task: () => Promise<Result>): Promise<Result>
  /** Resolves when every task that was added so far has ended. Never rejects. */
  idle(): Promise<void>
}

/** Creates a queue without a limit. Its users must limit the number of tasks. */
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
