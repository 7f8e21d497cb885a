import { LruMap } from '../runtime/lru-map.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import type { KeysStore, StoredKey } from './keys-store.ts'

/** How old a key's data may be, so that a revoked key stops working within a second. */
export const KEY_AGE_MAX_MS = 500

/** Without this limit, invented ids could fill the memory. */
export const KEYS_CACHED_MAX = 10_000

/** A key that was used within this time is looked up again before its data is too old. */
const IN_USE_MS = 2_000

/** The rest of KEY_AGE_MAX_MS is time for a lookup. */
const REFRESH_INTERVAL_MS = 350

type KnownKey = {
  /** Rejects with the driver's error. */
  readonly key: Promise<StoredKey | null>
  readonly askedAtMs: number
  readonly usedAtMs: number
  /** False for an unknown id, which is not looked up again in the background. */
  readonly isThere: boolean
}

/**
 * Looks keys up. An answer of the store is used for KEY_AGE_MAX_MS. Before this time ends, one
 * query refreshes all keys in use, so calls with these keys do not wait. Rejects with the driver's
 * error. `monotonic` returns milliseconds of a monotonic clock.
 */
export function createKnownKeys(
  store: Pick<KeysStore, 'findKey' | 'findKeys'>,
  monotonic: () => number,
): (id: string) => Promise<StoredKey | null> {
  const known = new LruMap<string, KnownKey>(KEYS_CACHED_MAX)
  let timer: NodeJS.Timeout | null = null

  function lookUp(id: string, atMs: number): Promise<StoredKey | null> {
    const key = store.findKey(id)
    known.set(id, { key, askedAtMs: atMs, usedAtMs: atMs, isThere: false })
    key.then(
      (found) => {
        const now = known.get(id)
        if (now?.key === key && found !== null) known.set(id, { ...now, isThere: true })
      },
      () => {
        if (known.get(id)?.key === key) known.delete(id)
      },
    )
    return key
  }

  function idsInUse(): string[] {
    const since = monotonic() - IN_USE_MS
    return [...known].flatMap(([id, { isThere, usedAtMs }]) =>
      isThere && usedAtMs >= since ? [id] : [],
    )
  }

  /** If the refresh fails, each call looks up its key when the data is too old. */
  const refresh = singleFlight(async () => {
    const ids = idsInUse()
    if (ids.length === 0) {
      if (timer !== null) clearInterval(timer)
      timer = null
      return
    }
    const askedAtMs = monotonic()
    const keys = await store.findKeys(ids).catch(() => null)
    if (keys === null) return
    const found = new Map(keys.map((key) => [key.id, key]))
    for (const id of ids) {
      const entry = known.get(id)
      // The key was removed or looked up again while this lookup ran.
      if (entry === undefined || entry.askedAtMs > askedAtMs) continue
      const key = found.get(id) ?? null
      known.set(id, { ...entry, key: Promise.resolve(key), askedAtMs, isThere: key !== null })
    }
  })

  return (id) => {
    const atMs = monotonic()
    timer ??= setInterval(() => void refresh(), REFRESH_INTERVAL_MS).unref()
    const entry = known.get(id)
    if (entry === undefined || atMs - entry.askedAtMs >= KEY_AGE_MAX_MS) return lookUp(id, atMs)
    known.set(id, { ...entry, usedAtMs: atMs })
    return entry.key
  }
}
