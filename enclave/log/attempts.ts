import { createHash } from 'node:crypto'
import { COUNT_MAX, CountTable } from './count-table.ts'

/**
 * Most requests of one generation. When it is full the next begins, but not before
 * GENERATION_MIN_MS.
 */
export const GENERATION_REQUESTS_MAX = 2 ** 22

/** How long a generation goes on while it is not full, milliseconds. */
export const GENERATION_MS = 24 * 3_600_000

/** How long a generation lasts at least, milliseconds: no caller waits so long for an answer. */
export const GENERATION_MIN_MS = 3_600_000

/** Counts how often a log was asked for a completion of each request. */
export type Attempts = {
  /**
   * Counts one more call of a request, and gives how many there were, this one included. Null when
   * no more requests can be remembered. The call must then be refused, because a request that is
   * not remembered could be repeated unnoticed. `digest`: the request's SHA-256.
   */
  readonly count: (digest: Uint8Array) => number | null
}

/**
 * Remembers every request for at least GENERATION_MIN_MS, and for 24 to 48 h while there are fewer
 * than GENERATION_REQUESTS_MAX requests. Costs 13 to 27 bytes for each. `key` is 16 random bytes or
 * more, and secret, so that no caller can find two requests that are counted as one. `monotonic`:
 * milliseconds of a clock that is never set.
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
