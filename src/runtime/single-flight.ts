/**
 * Returns a function that runs `task`, but only one run at a time. If it is called during a run,
 * the call gets the result or the error of that run.
 */
export function singleFlight<Result>(task: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | null = null
  return () => {
    running ??= start().finally(() => {
      running = null
    })
    return running
  }

  /**
   * This function is asynchronous, so that a task that throws synchronously rejects like any other
   * task.
   */
  async function start(): Promise<Result> {
    return await task()
  }
}
