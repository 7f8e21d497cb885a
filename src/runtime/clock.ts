/** Read only once, because unixMs is called several times for each chunk. */
const TIME_ORIGIN_MS = performance.timeOrigin

/** Returns Unix milliseconds with a fraction. The clock never goes back. */
export function unixMs(): number {
  return TIME_ORIGIN_MS + performance.now()
}
