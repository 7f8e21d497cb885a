import { LruMap } from '../runtime/lru-map.ts'

/** An account, a client's address, or another gateway with a request of its own caller. */
export type FreshCaller = {
  /**
   * All callers with the same group name use one share. Null: another gateway, which has taken its
   * caller's share already.
   */
  readonly group: string | null
  /** True if the caller has a valid key. */
  readonly isKnown: boolean
}

/** `burst`: maximum number at once. */
type Rate = { readonly perSecond: number; readonly burst: number }

/** All callers without a key share OPEN_RATE. KNOWN_RATE is extra, for callers with a key. */
export const OPEN_RATE: Rate = { perSecond: 8, burst: 16 }
export const KNOWN_RATE: Rate = { perSecond: 16, burst: 32 }
/** Limit for each address of callers without a key. Enough for a client of eight enclaves. */
export const ADDRESS_RATE: Rate = { perSecond: 2, burst: 8 }
/** Limit for each account. An account may have many programs that start at once. */
const ACCOUNT_RATE: Rate = { perSecond: 10, burst: 20 }
/** Maximum number of remembered callers. A forgotten caller has its whole share again. */
const CALLERS_MAX = 10_000

/**
 * Limits how many fresh documents an enclave makes, because its security module must sign each
 * document. Each caller has a share, and all callers together have a limit. Returns a function that
 * takes one document from a caller's share. The function returns false if the share is used up.
 * `now` returns milliseconds of a monotonic clock.
 */
export function createFreshShares(now: () => number): (caller: FreshCaller) => boolean {
  const open = createBucket(OPEN_RATE, now)
  const known = createBucket(KNOWN_RATE, now)
  const own = new LruMap<string, Bucket>(CALLERS_MAX)

  return ({ group, isKnown }) => {
    const rate = isKnown ? ACCOUNT_RATE : ADDRESS_RATE
    const share = group === null ? null : own.getOrMake(group, () => createBucket(rate, now))
    if (share?.has() === false) return false
    const pool = (isKnown ? [known, open] : [open]).find((bucket) => bucket.has())
    if (pool === undefined) return false
    pool.take()
    share?.take()
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
