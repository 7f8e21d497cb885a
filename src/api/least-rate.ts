import { ApiError } from './errors.ts'

/** How long a body may take, and how much longer for the bytes that have arrived. */
export type LeastRate = {
  readonly graceMs: number
  readonly bytesPerSecond: number
}

/** Slower than any link that people use: 32 kbit/s, after ten seconds. */
export const LEAST_RATE: LeastRate = { graceMs: 10_000, bytesPerSecond: 4_096 }

/**
 * Watches that a body goes on arriving: at `graceMs` after its beginning, and at any time after it,
 * so much has to be there that the rest was no slower than `bytesPerSecond`. Calls `fail` once with
 * ApiError `body_too_slow` when it is not. `bytes` gives what has arrived.
 */
export function watchRate(
  { graceMs, bytesPerSecond }: LeastRate,
  {
    bytes,
    waitedMs = 0,
    fail,
  }: {
    readonly bytes: () => number
    /** How long the body was waited for before. */
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

/** Longest that a timer can wait. */
const TIMER_MAX_MS = 2 ** 31 - 1

function tooSlow(graceMs: number, bytesPerSecond: number): ApiError {
  return new ApiError(
    'body_too_slow',
    `Expected the body within ${graceMs / 1000} s, or at ${bytesPerSecond} bytes a second`,
  )
}
