import { ApiError } from './errors.ts'

/** A body may take `graceMs`, and more time for each byte that has arrived. */
export type LeastRate = {
  readonly graceMs: number
  readonly bytesPerSecond: number
}

/** 32 kbit/s after the first ten seconds. Real connections are faster. */
export const LEAST_RATE: LeastRate = { graceMs: 10_000, bytesPerSecond: 4_096 }

/**
 * Calls `fail` once with ApiError `body_too_slow` if, after `graceMs`, a body's average rate since
 * its start is below `bytesPerSecond`. `bytes` returns how many bytes have arrived.
 */
export function watchRate(
  { graceMs, bytesPerSecond }: LeastRate,
  {
    bytes,
    waitedMs = 0,
    fail,
  }: {
    readonly bytes: () => number
    /** Time that the calling code has already waited for the body. */
    readonly waitedMs?: number
    readonly fail: (error: ApiError) => void
  },
): { stop(): void } {
  const beganMs = performance.now() - waitedMs
  const dueMs = () => beganMs + graceMs + (bytes() / bytesPerSecond) * 1000
  let timer = setTimeout(check, Math.max(0, graceMs - waitedMs))

  function check(): void {
    const leftMs = dueMs() - performance.now()
    if (leftMs > 0) timer = setTimeout(check, Math.min(leftMs, TIMER_MAX_MS))
    else fail(tooSlow(graceMs, bytesPerSecond))
  }

  return { stop: () => clearTimeout(timer) }
}

/** Limit of timers in Node.js. */
const TIMER_MAX_MS = 2 ** 31 - 1

function tooSlow(graceMs: number, bytesPerSecond: number): ApiError {
  return new ApiError(
    'body_too_slow',
    `Expected the body within ${graceMs / 1000} s, or at ${bytesPerSecond} bytes a second`,
  )
}
