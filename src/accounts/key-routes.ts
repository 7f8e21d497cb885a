import { z } from 'zod'
import { createAdmission } from '../api/admission.ts'
import { actorOf } from '../api/authenticate.ts'
import {
  type Caller,
  hasScope,
  MADE_SCOPES,
  type Operator,
  SCOPES,
  type Scope,
} from '../api/context.ts'
import { ApiError, unfitFor } from '../api/errors.ts'
import { boundedInteger } from '../api/form-schema.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { boundedText, faultIssue, NAME_LENGTH_MAX, unixSeconds, uuidText } from '../api/schemas.ts'
import type { AdminLog } from './admin-log-store.ts'
import { type ApiKeyFacts, type ApiKeys, KEY_ID_FORM } from './api-keys.ts'
import { type BudgetsStore, budgetDescription } from './budgets-store.ts'
import { creationOf, keysIn, revocationsOf } from './open-keys.ts'

/** Maximum number of concurrent calls. The total size of their bodies has a separate limit. */
const KEY_CALLS_MAX = 256
const KEY_CALLS_BYTES_MAX = 16 * 1024 * 1024

/** A body contains a name, some scopes and a time. */
const KEY_BODY_BYTES_MAX = 16 * 1024

/** Unix seconds, in the year 9999. */
const EXPIRES_AT_MAX = 253_402_300_799

const scopes = z
  .array(z.enum(SCOPES))
  .min(1)
  .max(SCOPES.length)
  .check(({ value, issues }) => {
    if (new Set(value).size < value.length)
      issues.push(faultIssue([], 'value_error', 'Input should name each scope once'))
  })

/**
 * A null member counts as unset. Unknown members are ignored. Default of `account_id`: the caller's
 * account.
 */
export const createKey = z
  .looseObject({
    name: boundedText({ min: 1, max: NAME_LENGTH_MAX }),
    scopes: scopes.nullish(),
    expires_at: boundedInteger({ min: 1, max: EXPIRES_AT_MAX }).nullish(),
    account_id: uuidText.nullish(),
  })
  .transform(({ name, scopes, expires_at: expiresAt, account_id: accountId }) => ({
    name,
    scopes: scopes ?? MADE_SCOPES,
    expiresAt: typeof expiresAt === 'number' ? expiresAt : null,
    accountId: accountId ?? null,
  }))

/** Default: the caller's account. */
const keysQuery = z.looseObject({ account_id: uuidText.nullish() })

/** The facts of a key, without its secret. */
export const managedKey = z.strictObject({
  id: z.string(),
  account_id: z.uuid(),
  account_name: z.string(),
  name: z.string(),
  scopes: z.array(z.enum(SCOPES)),
  created_by: z
    .string()
    .nullable()
    .describe('Id of the key that created it; null for the operator'),
  created_at: unixSeconds,
  expires_at: unixSeconds.nullable(),
  revoked_at: unixSeconds.nullable(),
  last_used_at: unixSeconds.nullable().describe('To the minute'),
})

export type ManagedKey = z.output<typeof managedKey>

const keyList = z.strictObject({ keys: z.array(managedKey) })
export type KeyListReply = z.output<typeof keyList>

const newKey = managedKey.extend({ key: z.string().describe('The secret, shown only once') })
export type NewKeyReply = z.output<typeof newKey>

const keyHolder = z.strictObject({
  account_id: z.uuid(),
  account_name: z.string(),
  key_id: z.string(),
  scopes: z.array(z.enum(SCOPES)),
  tier: z.string().nullable().describe("Tier of the account's limits; null for the default tier"),
  expires_at: unixSeconds.nullable(),
  budgets: z
    .array(
      budgetDescription.omit({ account: true, key: true }).extend({
        key_id: z.string().nullable().describe('Null: the budget covers the whole account'),
      }),
    )
    .describe(
      'What this key may use and, with the scope inference, its account; money in billionths',
    ),
})
export type KeyHolderReply = z.output<typeof keyHolder>

type Keys = {
  readonly keys: Pick<ApiKeys, 'findAccount' | 'list'>
  readonly budgets: Pick<BudgetsStore, 'list'>
  readonly adminLog: AdminLog
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * A key with the scope `admin` acts on all accounts, a key with the scope `keys` on its account.
 * Any other key acts on itself. A new key gets no more rights and no longer life than the key that
 * makes it. A key with a budget makes no keys, because a new key could spend more than the budget.
 */
export function keyRoutes(over: Keys): readonly Route[] {
  const account = { tag: 'Account', scope: 'any' } as const
  return [
    defineRoute({
      ...account,
      method: 'GET',
      path: '/v1/dashboard/me',
      summary: 'The account and the scopes of this API key',
      reply: { name: 'KeyHolder', schema: keyHolder },
      handler: ({ caller }) => describeHolder(over, caller()),
    }),
    defineRoute({
      ...account,
      method: 'GET',
      path: '/v1/dashboard/keys',
      summary: 'API keys',
      description: 'Without the scope `keys`, only the calling key.',
      query: keysQuery,
      reply: { name: 'KeyList', schema: keyList },
      errors: ['insufficient_scope'],
      async handler({ caller, query }) {
        const asked = query.account_id ?? null
        const whose = isAdmin(caller()) ? asked : ownAccount(caller(), asked)
        const listed = await over.keys.list(whose)
        return { keys: listed.filter(({ id }) => mayActOn(caller(), id)).map(describeKey) }
      },
    }),
    defineRoute({
      ...account,
      scope: 'keys',
      method: 'POST',
      path: '/v1/dashboard/keys',
      summary: 'Create an API key',
      description:
        `Without \`scopes\`, the key has ${MADE_SCOPES.map((scope) => `\`${scope}\``).join(' and ')}. ` +
        'Without `expires_at`, it does not expire. The calling key gives no more scopes and no ' +
        'longer life than it has; with the scope `admin`, it gives any. A key with a budget creates ' +
        'no keys.',
      body: {
        name: 'CreateKeyRequest',
        schema: createKey,
        bytesMax: KEY_BODY_BYTES_MAX,
        example: { name: 'my service', scopes: ['inference'] },
      },
      reply: { name: 'NewKey', schema: newKey },
      errors: ['limit_reached'],
      admission: createAdmission({ callsMax: KEY_CALLS_MAX, bytesMax: KEY_CALLS_BYTES_MAX }),
      handler: ({ caller, body, context }) => make(over, caller(), body, actorOf(context.state)),
    }),
    defineRoute({
      ...account,
      method: 'DELETE',
      path: '/v1/dashboard/keys/:id',
      summary: 'Revoke an API key',
      description:
        'To revoke another key than itself, a key needs the scope `keys`. ' +
        'The keys that this key created for its account are revoked too, and so are the keys ' +
        'that these created. Of these, the calling key stays valid, with the keys that it created.',
      params: z.object({ id: z.string() }),
      reply: { name: 'Key', schema: managedKey },
      errors: ['not_found', 'insufficient_scope'],
      handler: ({ caller, params, context }) =>
        revoke(over, caller(), params.id, actorOf(context.state)),
    }),
  ]
}

async function describeHolder(
  { keys, budgets }: Keys,
  { accountId, keyId, scopes, tier, expiresAt }: Caller,
): Promise<KeyHolderReply> {
  const [account, own] = await Promise.all([
    keys.findAccount(accountId),
    budgets.list({ accountId, keyId, withAccount: scopes.includes('inference') }),
  ])
  return {
    account_id: accountId,
    account_name: account?.name ?? '',
    key_id: keyId,
    scopes: [...scopes],
    tier,
    expires_at: expiresAt,
    budgets: own.map(({ account: _, key, ...budget }) => ({ key_id: key, ...budget })),
  }
}

async function make(
  { budgets, adminLog, now }: Keys,
  caller: Caller,
  { accountId, ...request }: z.output<typeof createKey>,
  actor: Operator,
): Promise<NewKeyReply> {
  const whose = isAdmin(caller) ? (accountId ?? caller.accountId) : ownAccount(caller, accountId)
  if (!isAdmin(caller)) checkGrant(caller, request)
  if ((await budgets.list({ accountId: caller.accountId, keyId: caller.keyId })).length > 0)
    throw new ApiError('insufficient_scope', 'A key with a budget cannot create keys')
  if (request.expiresAt !== null && request.expiresAt * 1000 <= now())
    throw unfitFor('body', 'expires_at', 'Input should be in the future')
  // The fixed key of a development gateway is not in the database, so its id is not stored.
  const createdBy = KEY_ID_FORM.test(caller.keyId) ? caller.keyId : null
  const made = await adminLog.record(
    actor,
    (inside) => keysIn(inside).createFor(whose, { ...request, createdBy }),
    (outcome) => (typeof outcome === 'string' ? [] : [creationOf(outcome.key)]),
  )
  if (made === 'unknown_account')
    throw unfitFor('body', 'account_id', 'Input should be the id of an account')
  if (made === 'maker_revoked')
    throw new ApiError('invalid_credentials', 'This API key has just been revoked')
  if (made === 'too_many') throw new ApiError('limit_reached', 'This account has too many keys')
  return { ...describeKey(made.key), key: made.text }
}

/** Revokes a key, and the keys that it made for the same account, except the calling key. */
async function revoke(
  { keys, adminLog }: Keys,
  caller: Caller,
  id: string,
  actor: Operator,
): Promise<ManagedKey> {
  if (!mayActOn(caller, id))
    throw new ApiError('insufficient_scope', 'To revoke other keys, a key needs the scope keys')
  const accountId = isAdmin(caller) ? null : caller.accountId
  const find = async () => (await keys.list(accountId)).find((facts) => facts.id === id)
  if (!isAdmin(caller)) {
    const scopes = (await find())?.scopes ?? []
    checkScopes(caller, scopes, 'A key cannot revoke a key with more scopes')
  }
  const revoked = await adminLog.record(
    actor,
    (inside) => keysIn(inside).revoke(id, { accountId, kept: caller.keyId }),
    // Only changes are recorded, so that no key can fill the log.
    (ids) => (ids === null || ids.length === 0 ? [] : revocationsOf(id, ids)),
  )
  const key = revoked === null ? undefined : await find()
  if (key === undefined) throw new ApiError('not_found', 'There is no key with this id')
  return describeKey(key)
}

function isAdmin({ scopes }: Caller): boolean {
  return scopes.includes('admin')
}

function mayActOn({ keyId, scopes }: Caller, id: string): boolean {
  return id === keyId || hasScope(scopes, 'keys')
}

function ownAccount({ accountId: own }: Caller, asked: string | null): string {
  if (asked === null || asked.toLowerCase() === own) return own
  throw new ApiError('insufficient_scope', 'Keys of other accounts need a key with the scope admin')
}

function checkGrant(
  caller: Caller,
  { scopes, expiresAt }: Pick<z.output<typeof createKey>, 'scopes' | 'expiresAt'>,
): void {
  checkScopes(caller, scopes, 'A key cannot create a key with more scopes')
  if (caller.expiresAt !== null && (expiresAt === null || expiresAt > caller.expiresAt))
    throw unfitFor('body', 'expires_at', 'Input should not be after the expiry of the calling key')
}

function checkScopes(caller: Caller, scopes: readonly Scope[], rule: string): void {
  const missing = scopes.filter((scope) => !caller.scopes.includes(scope))
  if (missing.length > 0)
    throw new ApiError('insufficient_scope', `${rule}; it lacks ${missing.join(', ')}`)
}

export function describeKey(key: ApiKeyFacts): ManagedKey {
  return {
    id: key.id,
    account_id: key.accountId,
    account_name: key.accountName,
    name: key.name,
    scopes: [...key.scopes],
    created_by: key.createdBy,
    created_at: key.createdAt,
    expires_at: key.expiresAt,
    revoked_at: key.revokedAt,
    last_used_at: key.lastUsedAt,
  }
}
