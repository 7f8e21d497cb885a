/** Work that a signal can end. */
type Task<Result> = (signal: AbortSignal) => Promise<Result>

/**
 * Gives the results of all tasks, in order; some tasks run at the same time. The first failure
 * aborts the running tasks, and no further task is started. When all tasks have ended, the failure
 * is thrown. `signal` has the same effect; its reason is thrown.
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
