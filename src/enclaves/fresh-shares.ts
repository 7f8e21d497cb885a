import { LruMap } from '../runtime/lru-map.ts'

/** The caller of a fresh document: an account, a client's address, or another gateway. */
export type FreshCaller = {
  /** Name of the group whose share is used. */
  readonly group: string
  /** True if the caller has a valid key, or is another gateway. */
  readonly isKnown: boolean
}

/** Number of fresh documents: per second on average, and at most at once. */
type Rate = { readonly perSecond: number; readonly burst: number }

/**
 * The first rate is shared by all callers without a key. The second is an extra rate for callers
 * with a key.
 */
export const OPEN_RATE: Rate = { perSecond: 8, burst: 16 }
export const KNOWN_RATE: Rate = { perSecond: 16, burst: 32 }
/** Rate for each address without a key. It is enough for a client of eight enclaves. */
export const ADDRESS_RATE: Rate = { perSecond: 2, burst: 8 }
/** Rate for each account. An account may have many programs that start at once. */
export const ACCOUNT_RATE: Rate = { perSecond: 10, burst: 20 }
/** How many callers are remembered. A forgotten caller has its whole share again. */
const CALLERS_MAX = 10_000

/**
 * Limits how many fresh documents an enclave makes, because each one needs a signature of its
 * security module. One caller gets at most ADDRESS_RATE, or ACCOUNT_RATE with a key. All callers
 * without a key get at most OPEN_RATE in sum. Callers with a key have KNOWN_RATE, and the unused
 * part of OPEN_RATE. Returns a function that takes one document from a caller's share, or returns
 * false if the share is used up. `now` returns milliseconds of a clock that is never set.
 */
export function createFreshShares(now: () => number): (caller: FreshCaller) => boolean {
  const open = createBucket(OPEN_RATE, now)
  const known = createBucket(KNOWN_RATE, now)
  const own = new LruMap<string, Bucket>(CALLERS_MAX)

  return ({ group, isKnown }) => {
    const rate = isKnown ? ACCOUNT_RATE : ADDRESS_RATE
    const share = own.getOrMake(group, () => createBucket(rate, now))
    if (!share.has()) return false
    const pool = (isKnown ? [known, open] : [open]).find((bucket) => bucket.has())
    if (pool === undefined) return false
    pool.take()
    share.take()
    return true
  }
}

type Bucket = { has(): boolean; take(): void }

function createBucket({ perSecond, burst }: Rate, now: () => number): Bucket {
  let tokens = burst
  let atMs = now()
  return {
    has() {
      const nowMs = now()
      tokens = Math.min(burst, tokens + ((nowMs - atMs) / 1000) * perSecond)
      atMs = nowMs
      return tokens >= 1
    },
    take() {
      tokens -= 1
    },
  }
}
