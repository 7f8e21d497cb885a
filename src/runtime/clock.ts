/** Read only once, because unixMs is called several times for each chunk. */
const TIME_ORIGIN_MS = performance.timeOrigin

/**
 * Returns Unix milliseconds with a fraction. The clock never goes back, because it does not follow
 * the machine's clock after the start. Times that another machine checks come from Date.now.
 */
export function unixMs(): number {
  return TIME_ORIGIN_MS + performance.now()
}
