/** Runs tasks one after the other, in the order of their calls. */
type SerialQueue = {
  /** Gives the task's own result or error. If a task fails, the next task still runs. */
  run<Result>(task: () => Promise<Result>): Promise<Result>
  /** Resolves when every task that was added so far has ended. Never rejects. */
  idle(): Promise<void>
}

/** Gives a queue without a limit. Its callers must limit the number of tasks. */
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
