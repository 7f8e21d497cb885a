import { LruMap } from '../runtime/lru-map.ts'

/** Who asks for fresh documents: an account, a client's address, or another gateway. */
export type FreshCaller = {
  /** What its share is counted by. */
  readonly group: string
  /** Whether it came with a valid key, or is another gateway. */
  readonly isKnown: boolean
}

/** Fresh documents per second in the long run, and at once. */
type Rate = { readonly perSecond: number; readonly burst: number }

/** For all without a key together, and for callers with one besides. */
export const OPEN_RATE: Rate = { perSecond: 8, burst: 16 }
export const KNOWN_RATE: Rate = { perSecond: 16, burst: 32 }
/** For each address without a key: enough to connect to a service of eight enclaves at once. */
export const ADDRESS_RATE: Rate = { perSecond: 2, burst: 8 }
/** For each account: many of its programs may start at once. */
export const ACCOUNT_RATE: Rate = { perSecond: 10, burst: 20 }
/** Callers that are remembered. Of one that is forgotten the share is whole again. */
const CALLERS_MAX = 10_000

/**
 * Shares of the fresh documents that an enclave makes, each of which costs its security module a
 * signature. One caller takes at most ADDRESS_RATE, or ACCOUNT_RATE with a key. All callers without
 * a key take at most OPEN_RATE; callers with a key have KNOWN_RATE for themselves, and what is left
 * of that. Gives what takes one: false when the caller has none left. `now` gives milliseconds of a
 * clock that is never set.
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
