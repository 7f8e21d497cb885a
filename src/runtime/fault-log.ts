/** Decides when a lasting fault is logged: at its start, then at most once per interval. */
type FaultLog = {
  /** True if the fault must be logged now. A fault with a new `key` is a new fault. */
  isDue(key?: string): boolean
  /** Records the end of the fault. The next fault counts as new. */
  clear(): void
}

/** Creates the state for one log line. `now`: milliseconds, monotonic. */
export function createFaultLog(intervalMs: number, now: () => number): FaultLog {
  let last: { readonly key: string; readonly atMs: number } | null = null
  return {
    isDue(key = '') {
      const atMs = now()
      if (last !== null && last.key === key && atMs - last.atMs < intervalMs) return false
      last = { key, atMs }
      return true
    },
    clear() {
      last = null
    },
  }
}
