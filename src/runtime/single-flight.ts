/**
 * Returns a function that runs `task`. A call during a run gets the result or error of that run.
 */
export function singleFlight<Result>(task: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | null = null
  return () => {
    running ??= start().finally(() => {
      running = null
    })
    return running
  }

  /** Turns a synchronous error of `task` into a rejection. */
  async function start(): Promise<Result> {
    return await task()
  }
}
