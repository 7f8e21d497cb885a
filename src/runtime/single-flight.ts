/**
 * Gives a function that runs `task` at most once at a time. Calls during a run share that run, with
 * its result and its error.
 */
export function singleFlight<Result>(task: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | null = null
  return () => {
    running ??= start().finally(() => {
      running = null
    })
    return running
  }

  /** Asynchronous, so that a task that throws at once rejects like any other task. */
  async function start(): Promise<Result> {
    return await task()
  }
}
