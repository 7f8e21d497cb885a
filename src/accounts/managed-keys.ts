import type { Caller, Scope } from '../api/context.ts'
import type { Operator } from '../api/control-operations.ts'
import { ApiError, ValidationError } from '../api/errors.ts'
import type { AdminLog } from './admin-log-store.ts'
import { type ApiKeyFacts, type ApiKeys, KEY_ID_FORM } from './api-keys.ts'
import type { BudgetsStore } from './budgets-store.ts'
import { createKeysStore } from './keys-store.ts'
import { keysOver } from './open-keys.ts'

/** Who manages keys: the holder of one. */
type KeyManager = {
  readonly accountId: string
  readonly keyId: string
  readonly scopes: readonly Scope[]
  /** When the manager's own key ends, Unix seconds; null for never. */
  readonly expiresAt: number | null
}

/** A key as the API shows it: never the secret. Times are Unix seconds. */
type ManagedKey = {
  readonly id: string
  readonly account_id: string
  readonly account_name: string
  readonly name: string
  readonly scopes: readonly Scope[]
  /** Id of the key that made it; null when the operator did. */
  readonly made_by: string | null
  readonly created_at: number
  readonly expires_at: number | null
  readonly revoked_at: number | null
  /** To the minute. */
  readonly last_used_at: number | null
}

/** A key to be made. */
type ManagedKeyRequest = {
  readonly name: string
  readonly scopes: readonly Scope[]
  readonly expiresAt: number | null
  /** Null for the manager's own account. */
  readonly accountId: string | null
}

/**
 * Keys for a dashboard: each account's own, and for a key with the scope `admin` those of all
 * accounts. A key without it makes keys with the scope `keys` alone: none that could do more than
 * itself, nor live longer; and it ends none that can do more. A key with a budget makes none: a new
 * key would not be held to the budget. Methods throw ApiError `insufficient_scope` and `not_found`.
 */
export type ManagedKeys = {
  /** Says who calls, as the account is stored. */
  describeHolder(caller: Caller): Promise<object>
  /** Oldest first. `accountId` null is the manager's own account; for an admin, all. */
  list(
    manager: KeyManager,
    accountId: string | null,
  ): Promise<{ readonly keys: readonly ManagedKey[] }>
  /**
   * `key` is the secret, shown this once. Throws ValidationError for an account that there is not,
   * and for an expiry in the past, ApiError `limit_reached` when the account has too many keys.
   */
  create(
    manager: KeyManager,
    request: ManagedKeyRequest,
    from: string,
  ): Promise<ManagedKey & { readonly key: string }>
  /**
   * Ends a key and those that it made for its account, but for the one that asks; every gateway
   * stops taking them within a second.
   */
  revoke(manager: KeyManager, id: string, from: string): Promise<ManagedKey>
}

/**
 * Managed keys over the keys; what is made and ended is recorded in `adminLog`, with the address
 * that it was asked from. `now` is Unix milliseconds.
 */
export function createManagedKeys({
  keys,
  budgets,
  adminLog,
  now,
}: {
  readonly keys: Pick<ApiKeys, 'findAccount' | 'list'>
  readonly budgets: Pick<BudgetsStore, 'list'>
  readonly adminLog: AdminLog
  readonly now: () => number
}): ManagedKeys {
  /** A key that it makes would spend beside its budget. Its account's budgets hold them both. */
  async function checkBudget({ accountId, keyId }: KeyManager): Promise<void> {
    if ((await budgets.list({ accountId, keyId })).length > 0)
      throw new ApiError('insufficient_scope', 'A key with a budget cannot make keys')
  }

  return {
    async describeHolder({ accountId, keyId, scopes, tier, expiresAt }) {
      const [account, own] = await Promise.all([
        keys.findAccount(accountId),
        budgets.list({ accountId, keyId, withAccount: true }),
      ])
      return {
        account_id: accountId,
        account_name: account?.name ?? '',
        key_id: keyId,
        scopes,
        tier,
        expires_at: expiresAt,
        budgets: own.map(({ account: _, key, ...budget }) => ({ key_id: key, ...budget })),
      }
    },
    async list(manager, accountId) {
      const whose = isAdmin(manager) ? accountId : ownAccount(manager, accountId)
      return { keys: (await keys.list(whose)).map(describe) }
    },
    async create(manager, { accountId, ...request }, from) {
      const whose = isAdmin(manager)
        ? (accountId ?? manager.accountId)
        : ownAccount(manager, accountId)
      if (!isAdmin(manager)) checkGrant(manager, request)
      await checkBudget(manager)
      if (request.expiresAt !== null && request.expiresAt * 1000 <= now())
        throw unfit('expires_at', 'Input should be in the future')
      const made = await adminLog.within(actorOf(manager, from), async (database, record) => {
        const outcome = await keysOver(createKeysStore(database)).createFor(whose, {
          ...request,
          // The key of a development configuration is in no table.
          madeBy: KEY_ID_FORM.test(manager.keyId) ? manager.keyId : null,
        })
        if (typeof outcome === 'string') return outcome
        const { id, accountName: account, name, scopes, expiresAt: expires_at } = outcome.key
        const details = { account, name, scopes, expires_at }
        await record({ kind: 'key.create', target: id, details })
        return outcome
      })
      if (made === 'unknown_account')
        throw unfit('account_id', 'Input should be the id of an account')
      if (made === 'maker_revoked')
        throw new ApiError('invalid_credentials', 'This API key has just been revoked')
      if (made === 'too_many') throw new ApiError('limit_reached', 'This account has too many keys')
      return { ...describe(made.key), key: made.text }
    },
    async revoke(manager, id, from) {
      const whose = isAdmin(manager) ? null : manager.accountId
      const find = async () => (await keys.list(whose)).find((facts) => facts.id === id)
      const scopes = (await find())?.scopes ?? []
      if (!isAdmin(manager))
        checkScopes(manager, scopes, 'A key cannot revoke a key with more scopes')
      const isRevoked = await adminLog.within(actorOf(manager, from), async (database, record) => {
        const ids = await keysOver(createKeysStore(database)).revoke(id, {
          accountId: whose,
          kept: manager.keyId,
        })
        for (const act of revocationsOf(id, ids)) await record(act)
        return ids !== null
      })
      const key = isRevoked ? await find() : undefined
      if (key === undefined) throw new ApiError('not_found', 'There is no key with this id')
      return describe(key)
    },
  }
}

/** What is recorded when a key ends: the key, and each that ended with it. */
export function revocationsOf(
  id: string,
  ids: readonly string[] | null,
): readonly { readonly kind: string; readonly target: string; readonly outcome: string }[] {
  const others = (ids ?? []).filter((other) => other !== id)
  const outcome = ids === null ? 'unknown' : 'revoked'
  return [
    { kind: 'key.revoke', target: id, outcome },
    ...others.map((target) => ({ kind: 'key.revoke', target, outcome: `revoked with ${id}` })),
  ]
}

function actorOf({ keyId, accountId }: KeyManager, from: string): Operator {
  return { who: `key ${keyId}`, accountId, from }
}

function isAdmin({ scopes }: KeyManager): boolean {
  return scopes.includes('admin')
}

function ownAccount({ accountId: own }: KeyManager, asked: string | null): string {
  if (asked === null || asked.toLowerCase() === own) return own
  throw new ApiError('insufficient_scope', 'Keys of other accounts need a key with the scope admin')
}

function checkGrant(
  manager: KeyManager,
  { scopes, expiresAt }: Omit<ManagedKeyRequest, 'accountId'>,
): void {
  if (!manager.scopes.includes('keys'))
    throw new ApiError('insufficient_scope', 'To make keys, you need a key with the scope keys')
  checkScopes(manager, scopes, 'A key cannot make a key with more scopes')
  if (manager.expiresAt !== null && (expiresAt === null || expiresAt > manager.expiresAt))
    throw unfit('expires_at', 'Input should not be after the expiry of the calling key')
}

function checkScopes(manager: KeyManager, scopes: readonly Scope[], rule: string): void {
  const missing = scopes.filter((scope) => !manager.scopes.includes(scope))
  if (missing.length > 0)
    throw new ApiError('insufficient_scope', `${rule}; it lacks ${missing.join(', ')}`)
}

function unfit(member: string, msg: string): ValidationError {
  return new ValidationError([{ loc: ['body', member], msg, type: 'value_error' }])
}

function describe(key: ApiKeyFacts): ManagedKey {
  return {
    id: key.id,
    account_id: key.accountId,
    account_name: key.accountName,
    name: key.name,
    scopes: key.scopes,
    made_by: key.madeBy,
    created_at: key.createdAt,
    expires_at: key.expiresAt,
    revoked_at: key.revokedAt,
    last_used_at: key.lastUsedAt,
  }
}
