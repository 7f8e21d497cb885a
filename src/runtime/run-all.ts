type Task<Result> = (signal: AbortSignal) => Promise<Result>

/**
 * Runs at most `atOnce` tasks at a time, and returns all results in order. After the first failure,
 * or when `signal` is aborted, the running tasks are aborted and no other task is started. The
 * failure, or the signal's reason, is thrown when all started tasks have ended.
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
