import { hash, timingSafeEqual } from 'node:crypto'
import { DEFAULT_SCOPES, SCOPES, type Scope } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import { patternText } from '../api/schemas.ts'
import { LruMap } from '../runtime/lru-map.ts'
import { type Account, type KeysStore, type StoredKey, USE_INTERVAL_SECONDS } from './keys-store.ts'
import { createKnownKeys, KEYS_CACHED_MAX } from './known-keys.ts'

/**
 * `afd_`, the public id (80 bits, base32), `_`, the secret (256 bits, base64url without padding).
 */
export const API_KEY_FORM = /^afd_([a-z2-7]{16})_[A-Za-z0-9_-]{43}$/

/**
 * The form of a key's id. Other texts are not looked up, because the database cannot store some
 * texts (U+0000).
 */
export const KEY_ID_FORM = /^[a-z2-7]{16}$/
export const keyIdText = patternText(KEY_ID_FORM, 'value_error', 'the id of a key')

/**
 * Maximum number of keys that an account made through the API: valid keys, and keys that expired or
 * were revoked within the last day. Without this limit, one key could fill the database.
 */
export const KEYS_PER_ACCOUNT_MAX = 10_000
const ENDED_KEPT_SECONDS = 24 * 3_600

/** The facts of a key that may be shown, without its secret and the secret's digest. */
export type ApiKeyFacts = Omit<StoredKey, 'secretHash' | 'tier' | 'isDisabled' | 'isBudgeted'>

/** The caller that a valid key identifies. */
type KeyHolder = {
  readonly accountId: string
  /** Public id of the key. Logs may contain it. */
  readonly keyId: string
  readonly scopes: readonly Scope[]
  /** Null for the default tier. */
  readonly tier: string | null
  /** Unix seconds. Null if the key never expires. */
  readonly expiresAt: number | null
  /** True if the key or its account has a budget. */
  readonly isBudgeted: boolean
}

type KeyRequest = {
  readonly name: string
  /** Default: DEFAULT_SCOPES. */
  readonly scopes?: readonly Scope[]
  /** Unix seconds. Default: null (never). */
  readonly expiresAt?: number | null
  /** Public id of the key that makes this key. Default: null (the operator). */
  readonly createdBy?: string | null
}

/** `text` is the key itself, which is not shown again. */
type NewApiKey = {
  readonly text: string
  readonly key: ApiKeyFacts
}

/** Methods throw the driver's error when the database fails. */
export type ApiKeys = {
  /**
   * Null if the key is invalid, revoked or expired. Throws ApiError `account_disabled` for a valid
   * key of a disabled account.
   */
  authenticate(text: string): Promise<KeyHolder | null>
  /** Makes the account first if no account has this name. */
  create(
    key: Omit<KeyRequest, 'createdBy'> & { readonly accountName: string },
  ): Promise<NewApiKey & { readonly isAccountNew: boolean }>
  /**
   * `too_many`: the account has KEYS_PER_ACCOUNT_MAX keys. Concurrent calls can exceed this limit
   * slightly.
   */
  createFor(
    accountId: string,
    key: KeyRequest,
  ): Promise<NewApiKey | 'unknown_account' | 'too_many' | 'maker_revoked'>
  /** Oldest first: the keys of one account, or of all accounts (null, the default). */
  list(accountId?: string | null): Promise<readonly ApiKeyFacts[]>
  /**
   * Revokes a key of the account (null, the default: of any account), and the keys that this key
   * made for the same account, except `kept`. Every gateway refuses the revoked keys within
   * KEY_AGE_MAX_MS. Returns the ids of the keys that were valid before, or null if no key has this
   * id.
   */
  revoke(
    id: string,
    options?: { readonly accountId?: string | null; readonly kept?: string | null },
  ): Promise<readonly string[] | null>
  /** Finds or makes the account of this name. */
  openAccount(name: string): Promise<Account & { readonly isNew: boolean }>
  /** Null if no account has this id, or the account is deleted. */
  findAccount(id: string): Promise<Account | null>
}

/**
 * `now` is Unix milliseconds. `random` returns unpredictable bytes. `fixedKey` is also accepted,
 * for development only: it may have any form and cannot be revoked. `monotonic` returns
 * milliseconds of a monotonic clock, which limits how long a revoked key is accepted.
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
    { name, scopes = DEFAULT_SCOPES, expiresAt = null, createdBy = null }: KeyRequest,
  ): Promise<NewApiKey | 'maker_revoked'> {
    const id = encodeBase32(random(PUBLIC_ID_BYTES))
    const text = `afd_${id}_${Buffer.from(random(SECRET_BYTES)).toString('base64url')}`
    const terms = { scopes, expiresAt, createdBy }
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
      const made = await make(account, { ...key, createdBy: null })
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

/** One SHA-256 without a salt is enough: keys are 256 random bits and cannot be guessed. */
function digestOf(text: string): Uint8Array {
  return hash('sha256', text, 'buffer')
}

function isSameDigest(left: Uint8Array, right: Uint8Array): boolean {
  return left.length === right.length && timingSafeEqual(left, right)
}

/**
 * RFC 4648 section 6, in lower case, without padding. The length of `bytes` must be a multiple of
 * 5.
 */
function encodeBase32(bytes: Uint8Array): string {
  const bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, '0')).join('')
  return (bits.match(/.{5}/g) ?? [])
    .map((digit) => BASE32_DIGITS.charAt(Number.parseInt(digit, 2)))
    .join('')
}

/** Records a use at most once in USE_INTERVAL_SECONDS, in the background. */
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
    // If this write fails, the first use of the next minute is recorded.
    keys.recordUse(id, Math.floor(now() / 1000)).catch(() => undefined)
  }
}
