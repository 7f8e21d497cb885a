/** Says when a fault that lasts is to be logged: when it is news, and then only once in a while. */
type FaultLog = {
  /** Whether the fault is to be logged now. Another `key` than the last one's is news. */
  isDue(key?: string): boolean
  /** The fault is over: the next one is news. */
  clear(): void
}

/** Gives the memory of one log line. `now`: milliseconds, monotonic. */
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
