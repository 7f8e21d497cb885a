import { LruMap } from '../runtime/lru-map.ts'
import { singleFlight } from '../runtime/single-flight.ts'
import type { KeysStore, StoredKey } from './keys-store.ts'

/**
 * How long what the database said of a key is believed, milliseconds: a revoked key stops well
 * within a second.
 */
export const KEY_AGE_MAX_MS = 500

/** Keys remembered at once, so that made-up ids cannot fill the memory. */
export const KEYS_CACHED_MAX = 10_000

/** A key that was used within so long is looked up again before what is known of it is too old. */
const IN_USE_MS = 2_000

/** Between two lookups of all the keys that are in use, each of which has the rest of its age. */
const REFRESH_INTERVAL_MS = 350

type KnownKey = {
  /** Rejects with the driver's error. */
  readonly key: Promise<StoredKey | null>
  readonly askedAtMs: number
  readonly usedAtMs: number
  /** Whether there is such a key: ids that are made up are not looked up again by themselves. */
  readonly isThere: boolean
}

/**
 * Gives what looks keys up. What the store said is believed for KEY_AGE_MAX_MS by `monotonic`,
 * milliseconds of a clock that is never set, and no longer. Calls with a key that is in use do not
 * wait for the store: all such keys are looked up again, in one query, before their time is over.
 * An answer that failed is not used again. Rejects with the driver's error.
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

  /** What fails is left to the calls, which ask for themselves when the time is over. */
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
      // A key that was forgotten, or asked for since, is not touched.
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
