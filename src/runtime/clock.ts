/** Read once: the clock is asked several times for each chunk. */
const TIME_ORIGIN_MS = performance.timeOrigin

/** Unix milliseconds with a fraction, of a clock that never goes back. */
export function unixMs(): number {
  return TIME_ORIGIN_MS + performance.now()
}
