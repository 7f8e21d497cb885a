/**
 * Returns a function that runs `task`, one run at a time. A call during a run gets the result or
 * the error of that run.
 */
export function singleFlight<Result>(task: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | null = null
  return () => {
    running ??= start().finally(() => {
      running = null
    })
    return running
  }

  /** Asynchronous, so that a task that throws synchronously rejects like any other task. */
  async function start(): Promise<Result> {
    return await task()
  }
}
