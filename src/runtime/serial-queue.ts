/** Runs tasks one after the other, in the order they were given. */
type SerialQueue = {
  /**
   * Gives the task's own result or error; a task that fails does not keep the next from running.
   */
  run<Result>(task: () => Promise<Result>): Promise<Result>
  /** Resolves when every task that was given so far has ended. Never rejects. */
  idle(): Promise<void>
}

/** Gives a queue without a bound: callers bound how many tasks they give it. */
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
