import { hash, timingSafeEqual } from 'node:crypto'
import { DEFAULT_SCOPES, SCOPES, type Scope } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import { LruMap } from '../runtime/lru-map.ts'
import { type Account, type KeysStore, type StoredKey, USE_INTERVAL_SECONDS } from './keys-store.ts'
import { createKnownKeys, KEYS_CACHED_MAX } from './known-keys.ts'

/**
 * `afd_`, the public id (80 bits, base32), `_`, the secret (256 bits, base64url without padding).
 */
export const API_KEY_FORM = /^afd_([a-z2-7]{16})_[A-Za-z0-9_-]{43}$/

/** Public id of a key. No other text is looked up: a database refuses some (U+0000). */
export const KEY_ID_FORM = /^[a-z2-7]{16}$/

/**
 * Keys that an account may have made through the API: the valid ones, and those that ended within a
 * day. Otherwise the holder of one key could fill the database.
 */
export const KEYS_PER_ACCOUNT_MAX = 10_000
const ENDED_KEPT_SECONDS = 24 * 3_600

/** What is shown of a key after its making: never the secret, nor its digest. */
export type ApiKeyFacts = Omit<StoredKey, 'secretHash' | 'tier' | 'isDisabled' | 'isBudgeted'>

/** Who calls, as far as a valid key shows it. */
type KeyHolder = {
  readonly accountId: string
  /** Public id of the key; fit for logs. */
  readonly keyId: string
  readonly scopes: readonly Scope[]
  /** Tier of the account's limits; null for the default one. */
  readonly tier: string | null
  /** Unix seconds; null for never. */
  readonly expiresAt: number | null
  /** Whether the key or its account has a budget. */
  readonly isBudgeted: boolean
}

/** A key to be made. */
type KeyRequest = {
  readonly name: string
  /** Default: DEFAULT_SCOPES. */
  readonly scopes?: readonly Scope[]
  /** Unix seconds. Default: null, which is never. */
  readonly expiresAt?: number | null
  /** Public id of the key that asks for it. Default: null, the operator. */
  readonly madeBy?: string | null
}

/** A key that was just made. `text` is the key itself, shown this once. */
type NewApiKey = {
  readonly text: string
  readonly key: ApiKeyFacts
}

/**
 * API keys: making, checking and revoking them. Methods throw the driver's error when the database
 * fails.
 */
export type ApiKeys = {
  /**
   * Gives the holder of a valid key that is neither revoked nor expired, else null, without the
   * reason. Throws ApiError `account_disabled` for such a key of an account that is disabled.
   */
  authenticate(text: string): Promise<KeyHolder | null>
  /** Makes a key for the account of this name, and the account when it is new. */
  create(
    key: Omit<KeyRequest, 'madeBy'> & { readonly accountName: string },
  ): Promise<NewApiKey & { readonly isAccountNew: boolean }>
  /**
   * Makes a key for the account with this id, unless it has KEYS_PER_ACCOUNT_MAX (calls at once may
   * pass it by a few) or the key that asks was revoked.
   */
  createFor(
    accountId: string,
    key: KeyRequest,
  ): Promise<NewApiKey | 'unknown_account' | 'too_many' | 'maker_revoked'>
  /** The keys of one account, or all (null, the default), oldest first. */
  list(accountId?: string | null): Promise<readonly ApiKeyFacts[]>
  /**
   * Revokes a key of an account, or of any (null, the default), by its public id, and the keys that
   * it made for its account, but for `kept`; every gateway stops taking them within
   * KEY_AGE_MAX_MS. Gives the ids of those that were good till then, or null when there is no such
   * key.
   */
  revoke(
    id: string,
    options?: { readonly accountId?: string | null; readonly kept?: string | null },
  ): Promise<readonly string[] | null>
  /** Finds or makes the account of this name. */
  openAccount(name: string): Promise<Account & { readonly isNew: boolean }>
  /** The account with this id, or null; null also for one that is deleted. */
  findAccount(id: string): Promise<Account | null>
}

/**
 * API keys over the store. `now` is Unix milliseconds, `random` gives so many unpredictable bytes.
 * `fixedKey` is a key of any form that is taken besides the stored ones, and not revocable: for
 * development alone. `monotonic`, by default performance.now, is milliseconds of a clock that is
 * never set: a key that was revoked is known for so long and no longer.
 */
export function createApiKeys(options: {
  readonly keys: KeysStore
  readonly now: () => number
  readonly monotonic?: () => number
  readonly random: (length: number) => Uint8Array
  readonly fixedKey?: { readonly text: string; readonly accountId: string } | null
}): ApiKeys {
  const { keys, now, random, fixedKey = null, monotonic = () => performance.now() } = options
  const findKey = createKnownKeys(keys, monotonic)
  const recordUse = rememberUse(keys, { now, monotonic })
  const unixSeconds = () => Math.floor(now() / 1000)
  const fixedDigest = fixedKey === null ? null : digestOf(fixedKey.text)

  const openAccount = (name: string) =>
    keys.openAccount({ id: crypto.randomUUID(), name, createdAt: unixSeconds() })

  async function make(
    account: Account,
    { name, scopes = DEFAULT_SCOPES, expiresAt = null, madeBy = null }: KeyRequest,
  ): Promise<NewApiKey | 'maker_revoked'> {
    const id = encodeBase32(random(PUBLIC_ID_BYTES))
    const text = `afd_${id}_${Buffer.from(random(SECRET_BYTES)).toString('base64url')}`
    const terms = { scopes, expiresAt, madeBy }
    const key = { id, accountId: account.id, name, createdAt: unixSeconds(), ...terms }
    if (!(await keys.addKey({ ...key, secretHash: digestOf(text) }))) return 'maker_revoked'
    const facts = { accountName: account.name, revokedAt: null, lastUsedAt: null }
    return { text, key: { ...key, ...facts } }
  }

  return {
    openAccount,
    findAccount: (id) => keys.findAccount(id),
    async authenticate(text) {
      const digest = digestOf(text)
      if (fixedKey !== null && fixedDigest !== null && isSameDigest(digest, fixedDigest))
        return {
          accountId: fixedKey.accountId,
          keyId: 'fixed',
          scopes: SCOPES,
          tier: null,
          expiresAt: null,
          isBudgeted: false,
        }
      const id = API_KEY_FORM.exec(text)?.[1]
      if (id === undefined) return null
      const key = await findKey(id)
      if (key === null || key.revokedAt !== null || !isSameDigest(digest, key.secretHash))
        return null
      const { accountId, scopes, tier, expiresAt, isBudgeted } = key
      if (expiresAt !== null && now() >= expiresAt * 1000) return null
      if (key.isDisabled)
        throw new ApiError('account_disabled', 'The account of this API key is disabled')
      recordUse(id)
      return { accountId, keyId: id, scopes, tier, expiresAt, isBudgeted }
    },
    async create({ accountName, ...key }) {
      const account = await openAccount(accountName)
      const made = await make(account, { ...key, madeBy: null })
      if (typeof made === 'string') throw new TypeError('expected a key of the operator')
      return { ...made, isAccountNew: account.isNew }
    },
    async createFor(accountId, key) {
      const account = await keys.findAccount(accountId)
      if (account === null) return 'unknown_account'
      const count = await keys.countKeys(accountId, unixSeconds() - ENDED_KEPT_SECONDS)
      return count < KEYS_PER_ACCOUNT_MAX ? make(account, key) : 'too_many'
    },
    list: async (accountId = null) =>
      (await keys.listKeys(accountId)).map(
        ({ secretHash: _, tier: __, isDisabled: ___, isBudgeted: ____, ...facts }) => facts,
      ),
    revoke: async (id, { accountId = null, kept = null } = {}) =>
      KEY_ID_FORM.test(id) ? keys.revokeKey(id, { at: unixSeconds(), accountId, kept }) : null,
  }
}

const PUBLIC_ID_BYTES = 10
const SECRET_BYTES = 32
const BASE32_DIGITS = 'abcdefghijklmnopqrstuvwxyz234567'

/** The keys are 256 random bits, so one plain SHA-256 is enough: there is nothing to guess. */
function digestOf(text: string): Uint8Array {
  return hash('sha256', text, 'buffer')
}

function isSameDigest(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && timingSafeEqual(left, right)
}

/** RFC 4648 section 6, lower case; `bytes` are a multiple of 5, so there is no padding. */
function encodeBase32(bytes: Uint8Array): string {
  const bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, '0')).join('')
  return (bits.match(/.{5}/g) ?? [])
    .map((digit) => BASE32_DIGITS.charAt(Number.parseInt(digit, 2)))
    .join('')
}

/**
 * Notes the use of a key, at most once in USE_INTERVAL_SECONDS and without making the call wait.
 */
function rememberUse(
  keys: Pick<KeysStore, 'recordUse'>,
  { now, monotonic }: { readonly now: () => number; readonly monotonic: () => number },
): (id: string) => void {
  const recordedAtMs = new LruMap<string, number>(KEYS_CACHED_MAX)

  return (id) => {
    const atMs = monotonic()
    if (atMs - (recordedAtMs.get(id) ?? Number.NEGATIVE_INFINITY) < USE_INTERVAL_SECONDS * 1000)
      return
    recordedAtMs.set(id, atMs)
    // When it fails, the next minute's use is recorded instead: it is only shown.
    keys.recordUse(id, Math.floor(now() / 1000)).catch(() => undefined)
  }
}
