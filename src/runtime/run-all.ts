/** Work that a signal can end. */
type Task<Result> = (signal: AbortSignal) => Promise<Result>

/**
 * Runs several of the tasks at the same time. Returns the results of all tasks, in order. The first
 * failure, or the abort of `signal`, aborts the running tasks, and no other task is started. When
 * all started tasks have ended, the failure or the signal's reason is thrown.
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
