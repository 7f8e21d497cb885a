import { createHash } from 'node:crypto'
import { COUNT_MAX, CountTable } from './count-table.ts'

/**
 * Maximum number of requests in one generation (a CountTable). A full generation ends, but not
 * before GENERATION_MIN_MS.
 */
export const GENERATION_REQUESTS_MAX = 2 ** 22

/** Duration of a generation that does not become full, milliseconds. */
export const GENERATION_MS = 24 * 3_600_000

/** Shortest duration of a generation, milliseconds. No caller waits this long for an answer. */
export const GENERATION_MIN_MS = 3_600_000

export type Attempts = {
  /**
   * Counts a call. Returns the number of calls with this request so far, including this call. Null
   * if there is no memory for another request: then the call must be refused, because a forgotten
   * request could be repeated unnoticed. `digest` is the request's SHA-256.
   */
  readonly count: (digest: Uint8Array) => number | null
}

/**
 * Remembers every request for at least GENERATION_MIN_MS, and up to GENERATION_REQUESTS_MAX
 * requests for 24 to 48 h. A request takes 13 to 27 bytes. `key` is at least 16 random bytes and
 * secret, so no caller can find two requests with the same fingerprint. `monotonic` is a monotonic
 * clock, milliseconds.
 */
export function createAttempts({
  key,
  monotonic,
  requestsMax = GENERATION_REQUESTS_MAX,
}: {
  readonly key: Uint8Array
  readonly monotonic: () => number
  readonly requestsMax?: number
}): Attempts {
  let newest = new CountTable(monotonic())
  let before: CountTable | null = null

  function isOver({ beganAtMs, size }: CountTable): boolean {
    const ageMs = monotonic() - beganAtMs
    return ageMs >= GENERATION_MS || (size >= requestsMax && ageMs >= GENERATION_MIN_MS)
  }

  return {
    count: (digest) => {
      if (isOver(newest)) {
        before = newest
        newest = new CountTable(monotonic())
      }
      const fingerprint = createHash('sha256').update(key).update(digest).digest()
      const known = newest.find(fingerprint)
      if (known === 0 && newest.size >= requestsMax) return null
      const count = Math.min(COUNT_MAX, (known || (before?.find(fingerprint) ?? 0)) + 1)
      newest.set(fingerprint, count)
      return count
    },
  }
}
