/**
 * Furthest that the enclave's clock may be from the security module's, milliseconds. Receipts state its time under oath; a
 * clock that is kept in step is right to milliseconds, and a call to the module may take a tenth of a second.
 */
export const CLOCK_SKEW_MAX_MS = 5_000

/** How far the enclave's clock is from the security module's, as far as it can be told. */
export type ClockWatch = {
  /** Begins an observation of the module's time; what it gives takes the time that the module then stated, Unix milliseconds. */
  observe(): (statedMs: number) => void
  /** Milliseconds that the clock is ahead (behind: below 0), at least; 0 before the first observation. */
  skewMs(): number
}

/**
 * Watches the clock `now` (Unix milliseconds): against each time that the module states, and between those against a clock
 * that is never set, so that a step is seen at once. A host that pauses the enclave, which stops both, shows at the next
 * observation.
 */
export function watchClock({
  now,
  monotonic,
}: {
  readonly now: () => number
  readonly monotonic: () => number
}): ClockWatch {
  const offset = () => now() - monotonic()
  let observed: { readonly skewMs: number; readonly offsetMs: number } | null = null
  return {
    observe: () => {
      const beforeMs = now()
      return (statedMs) => {
        // The module stated its time somewhere between the two.
        const afterMs = now()
        const ahead = Math.max(0, beforeMs - statedMs)
        const behind = Math.max(0, statedMs - afterMs)
        observed = { skewMs: ahead - behind, offsetMs: offset() }
      }
    },
    skewMs: () => (observed === null ? 0 : observed.skewMs + offset() - observed.offsetMs),
  }
}
