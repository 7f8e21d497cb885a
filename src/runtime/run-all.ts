/** Work that a signal can end. */
type Task<Result> = (signal: AbortSignal) => Promise<Result>

/**
 * Gives the results of all tasks, in their order; some run at the same time. The first failure ends
 * the running tasks and starts no more. It is thrown when no task runs any longer. `signal` does
 * the same, with its reason.
 */
export async function runAll<Result>(
  tasks: readonly Task<Result>[],
  { atOnce, signal }: { readonly atOnce: number; readonly signal: AbortSignal },
): Promise<readonly Result[]> {
  const abort = new AbortController()
  const both = AbortSignal.any([signal, abort.signal])
  const results: Result[] = []
  const waiting = tasks.entries()
  const work = async () => {
    for (const [index, task] of waiting) {
      both.throwIfAborted()
      results[index] = await task(both)
    }
  }
  const workers = Array.from({ length: Math.min(atOnce, tasks.length) }, () =>
    work().catch((error: unknown) => {
      abort.abort(error)
      throw error
    }),
  )
  await Promise.allSettled(workers)
  both.throwIfAborted()
  return results
}
