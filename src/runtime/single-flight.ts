/**
 * Gives a function that runs `task` at most once at a time: whoever calls it meanwhile shares the
 * run under way, its result and its error.
 */
export function singleFlight<Result>(task: () => Promise<Result>): () => Promise<Result> {
  let running: Promise<Result> | null = null
  return () => {
    running ??= start().finally(() => {
      running = null
    })
    return running
  }

  /** Asynchronous, so that a task that throws at once rejects like any other. */
  async function start(): Promise<Result> {
    return await task()
  }
}
