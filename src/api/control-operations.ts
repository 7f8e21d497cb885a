import { z } from 'zod'
import { isErasureReason } from '../../attestation/erasure.ts'
import { RETENTION_DAYS_MAX } from '../storage/settings.ts'
import { SCOPES } from './context.ts'

/** Longest name of an account or a key, characters. */
export const NAME_LENGTH_MAX = 100

/**
 * Whether text can name an account or a key: 1 to NAME_LENGTH_MAX characters, none of them for
 * control.
 */
export function isName(text: string): boolean {
  return (
    text.length > 0 &&
    text.length <= NAME_LENGTH_MAX &&
    !/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u.test(text)
  )
}

const name = z.string().refine(isName)
const unixSeconds = z.int()

/** An API key as it is shown: never the secret. */
const keyDescription = z.object({
  id: z.string(),
  account: z.string(),
  name: z.string(),
  scopes: z.array(z.enum(SCOPES)).readonly(),
  /** Id of the key that made it; null for the operator. */
  made_by: z.string().nullable(),
  created_at: unixSeconds,
  /** Null for never. */
  expires_at: unixSeconds.nullable(),
  /** Null while it is valid. */
  revoked_at: unixSeconds.nullable(),
  /** To the minute; null before the first use. */
  last_used_at: unixSeconds.nullable(),
})

/** What a key may be made for, and what an account is. */
const accountState = z.enum(['active', 'disabled', 'deleted'])

/** What an account, or a key, may use in a period; money is in billionths. */
export const budgetOrder = z.object({
  /** Null: the key's. */
  account: name.nullable(),
  /** Public id of a key; null for all of the account. */
  key: z.string().nullable(),
  what: z.enum(['requests', 'tokens', 'money']),
  per: z.enum(['day', 'month', 'total']),
  /** Null: no budget. */
  bound: z.int().min(0).nullable(),
})

/** A budget, and what is used and left of it in the period that is now. */
export const budgetDescription = budgetOrder.extend({
  account: name,
  bound: z.int(),
  used: z.int(),
  left: z.int(),
  /** When the period ends; null for never. */
  renews_at: unixSeconds.nullable(),
})

/** What a report of usage tells apart, and its periods (UTC); `total`: all of the range is one. */
export const USAGE_DIMENSIONS = ['account', 'key', 'operation', 'model'] as const
export const USAGE_PERIODS = ['hour', 'day', 'month', 'total'] as const

/** Usage of the periods that begin from `from` to before `until`. */
const usageQuery = z.object({
  /** Null: all accounts, or all keys. */
  account: name.nullable(),
  key: z.string().nullable(),
  from: unixSeconds,
  until: unixSeconds,
  per: z.enum(USAGE_PERIODS),
  by: z.array(z.enum(USAGE_DIMENSIONS)).readonly(),
})

/**
 * Sums of one period. A member is null where the report does not divide by it, or it is not known.
 */
const usageRow = z.object({
  /** Begin of the period. */
  start: unixSeconds,
  /** The former name of an account that is deleted. */
  account: z.string().nullable(),
  account_id: z.string().nullable(),
  key: z.string().nullable(),
  operation: z.string().nullable(),
  family: z.string().nullable(),
  /**
   * Empty for calls without a model, `*` for models beyond those that are kept apart in an hour.
   */
  model: z.string().nullable(),
  requests: z.int(),
  tokens: z.int(),
  /** Of calls where prompt and answer are counted apart. */
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  /** Of the others. */
  unsplit_tokens: z.int(),
  /** Billionths, of the requests that have a price: decimal digits. */
  money: z.string().regex(/^\d+$/),
  unpriced_requests: z.int(),
})

/** An act of an administrator, as it is recorded; no member holds a secret. */
export const adminAct = z.object({
  position: z.int(),
  /** SHA-256 of the hash before and this entry: hex. */
  hash: z.string(),
  at: unixSeconds,
  /** `operator`, with a user's id where it is known, `key` and its public id, or `gateway`. */
  who: z.string(),
  account_id: z.string().nullable(),
  /**
   * An address, `control socket`, `command line`, `signal`, `configuration` or `first start`.
   */
  from: z.string(),
  kind: z.string(),
  target: z.string(),
  details: z.record(z.string(), z.unknown()),
  outcome: z.string(),
})

/** Acts that are asked for; null is any. */
const adminActQuery = z.object({
  /** Older than this position. */
  before: z.int().nullable(),
  kind: z.string().nullable(),
  since: unixSeconds.nullable(),
  until: unixSeconds.nullable(),
  limit: z.int().min(1).max(1_000),
})

const adminLogCheck = z.discriminatedUnion('kind', [
  /** Position and hash of the newest act: keep them elsewhere, for the next check. */
  z.object({ kind: z.literal('whole'), position: z.int(), hash: z.string() }),
  /** The first act that is missing, or differs from what was recorded. */
  z.object({ kind: z.literal('altered'), position: z.int() }),
  /** The chain is whole, and does not have the act that was expected. */
  z.object({ kind: z.literal('unexpected'), position: z.int(), hash: z.string() }),
])

/** A key to be made. Its account is made too when no account has this name. */
const keyOrder = z.object({
  account: name,
  name,
  scopes: z.array(z.enum(SCOPES)).min(1).readonly(),
  /** Null for never. */
  expires_at: unixSeconds.nullable(),
})

/** An account as it is shown. */
export const accountDescription = z.object({
  id: z.string(),
  name: z.string(),
  /** Null for the standard one. */
  tier: z.string().nullable(),
  created_at: unixSeconds,
  /** Since when its keys are refused; null while they are not. */
  disabled_at: unixSeconds.nullable(),
})

/** An enclave as it is shown. */
const enclaveDescription = z.object({
  /** `unix:/path`, by which it is named. */
  url: z.string(),
  /**
   * `usable`, `draining`, `drained`, `refused`, `unreachable` or `connecting`
   * (src/enclaves/endpoint-state.ts).
   */
  state: z.string(),
  /** Null before it answered. */
  notary: z.string().nullable(),
  /** Calls in flight. */
  calls: z.int(),
  /** Leaves of its log in the database; null when it is not followed. */
  committed: z.int().nullable(),
  /** Why it is refused, out of reach, or its log cannot be committed; else empty. */
  fault: z.string(),
})

/** An account that pays or paid for anchors, as it is shown. */
const relayerDescription = z.object({
  /** 0x, lower case. */
  address: z.string(),
  /** Whether the gateway that was asked signs with it. */
  current: z.boolean(),
  /** Nonce of its next anchor in the database; null before the first. */
  next_nonce: z.int().nullable(),
  /** Anchors that are in no block. */
  waiting: z.int(),
  /** The same, and those in a block without enough confirmations. */
  unconfirmed: z.int(),
  /** When the oldest unconfirmed anchor was made; null when all are confirmed. */
  oldest_at: unixSeconds.nullable(),
  /**
   * What the chain has: decimal wei, the number of transactions in blocks, and that number with the
   * transactions that wait for a block. Null while it is away.
   */
  balance_wei: z.string().nullable(),
  chain_nonce: z.int().nullable(),
  pending_nonce: z.int().nullable(),
  /** Why the chain could not be asked; else empty. */
  fault: z.string(),
})

const reason = z.string().refine(isErasureReason)

const noKey = z.literal('no_key')

const enclaveUrl = z.string().describe('the url of an enclave')
const nothing = z.undefined()

/** A key that content was encrypted under, as it is shown: never the key itself. */
const contentKeyDescription = z.object({
  /** 16 hex digits. */
  id: z.string(),
  first_used_at: unixSeconds,
  /** When nothing was left under it; null while there may be something. */
  retired_at: unixSeconds.nullable(),
  /** Whether the process that answers has the key, and whether it encrypts with it. */
  is_known: z.boolean(),
  is_newest: z.boolean(),
})

type Operation<Order, Result> = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE'
  /** Its description says in words what is expected. */
  readonly order: z.ZodType<Order>
  readonly result: z.ZodType<Result>
}

function operation<Order, Result>(
  method: Operation<Order, Result>['method'],
  order: z.ZodType<Order>,
  result: z.ZodType<Result>,
): Operation<Order, Result> {
  return { method, order, result }
}

/**
 * All that the command line asks of a gateway, by resource: what crosses the control socket, for
 * both ends. An operation is a method at the path of its resource; order and result are JSON. Both
 * ends are of one version.
 */
export const CONTROL_OPERATIONS = {
  keys: {
    /** The only time that the secret is shown. */
    create: operation(
      'POST',
      keyOrder.describe('account, name, scopes and expiry'),
      keyDescription.extend({ key: z.string(), is_account_new: z.boolean() }),
    ),
    list: operation('GET', nothing, z.array(keyDescription).readonly()),
    /**
     * Ends a key, and the keys that it made for its account, within a second. Gives the ids of the
     * keys that were valid till then: an empty list when it was revoked before. `unknown` for an id
     * that no key has.
     */
    revoke: operation(
      'DELETE',
      z.string().describe('the id of a key'),
      z.union([z.array(z.string()).readonly(), z.literal('unknown')]),
    ),
  },
  accounts: {
    /** Makes the account, when no account has that name; its tier is left as it is. */
    open: operation(
      'POST',
      name.describe('a name'),
      accountDescription.extend({ is_new: z.boolean() }),
    ),
    list: operation('GET', nothing, z.array(accountDescription).readonly()),
    /**
     * Null is the standard tier. `unknown_tier` for a tier that the gateway does not have; where
     * the tiers are not known, any is taken.
     */
    setTier: operation(
      'PUT',
      z.object({ name, tier: name.nullable() }).describe('a name and a tier'),
      z.enum(['set', 'unknown_account', 'unknown_tier']),
    ),
    /**
     * Within a second the keys of a disabled account get 403; those of a deleted one are revoked,
     * and its name is free again.
     */
    setState: operation(
      'DELETE',
      z.object({ name, state: accountState }).describe('a name and a state'),
      z.enum(['set', 'unknown_account']),
    ),
  },
  budgets: {
    list: operation('GET', nothing, z.array(budgetDescription).readonly()),
    set: operation(
      'PUT',
      budgetOrder.describe('an account or a key, what, per and a bound'),
      z.enum(['set', 'unknown_account', 'unknown_key']),
    ),
  },
  /** What accounts used, and what it cost. */
  usage: {
    report: operation(
      'POST',
      usageQuery.describe('which usage'),
      z.union([z.array(usageRow).readonly(), z.enum(['too_many', 'unknown_account'])]),
    ),
  },
  /** What administrators did. */
  adminLog: {
    list: operation('POST', adminActQuery.describe('which acts'), z.array(adminAct).readonly()),
    check: operation(
      'PUT',
      z
        .object({ position: z.int(), hash: z.string() })
        .nullable()
        .describe('a position and a hash, or null'),
      adminLogCheck,
    ),
  },
  /**
   * Of a running gateway. What is changed lasts until it stops: then ENCLAVE_URL says which there
   * are.
   */
  enclaves: {
    list: operation('GET', nothing, z.array(enclaveDescription).readonly()),
    /** Takes it into use once it is checked; a drained enclave is taken into use again. */
    add: operation('POST', enclaveUrl, z.enum(['done', 'invalid', 'limit'])),
    /** No new calls. Does not wait until it is drained, which `list` shows. */
    drain: operation('PUT', enclaveUrl, z.enum(['done', 'invalid', 'unknown'])),
    /** Forgets an enclave that is not in use. */
    remove: operation('DELETE', enclaveUrl, z.enum(['done', 'invalid', 'unknown', 'in_use'])),
  },
  /** Requests and answers that are stored. The proofs stay; they hold only hashes of them. */
  erasures: {
    /** Of all records with this hash, at once: how many have it, and of how many it was erased. */
    record: operation(
      'POST',
      z
        .object({ hash: z.string().regex(/^[0-9a-f]{64}$/), reason })
        .describe('a hash and a reason'),
      z.object({ found: z.int(), erased: z.int() }),
    ),
    /** Of an account, up to now: from then on no caller is given this content. */
    account: operation(
      'PUT',
      z.object({ account: name, reason }).describe('an account and a reason'),
      z.enum(['erased', 'unknown_account']),
    ),
    /** Removes a part of it from the rows; again until it is done. Gateways do so as well. */
    remove: operation(
      'DELETE',
      name.describe('the name of an account'),
      z.object({ records: z.int(), is_done: z.boolean() }),
    ),
  },
  retention: {
    /** Null: as the gateway has it. */
    set: operation(
      'PUT',
      z
        .object({ name, days: z.int().min(1).max(RETENTION_DAYS_MAX).nullable() })
        .describe('an account and a number of days'),
      z.enum(['set', 'unknown_account']),
    ),
  },
  /** The keys that requests and answers are encrypted under. */
  content: {
    keys: operation('GET', nothing, z.array(contentKeyDescription).readonly()),
    /**
     * Encrypts content that is not under the newest key, from a position on. `next`: where to go
     * on; null at the end.
     */
    encrypt: operation(
      'POST',
      z.int().min(0).describe('a position'),
      z.union([
        noKey,
        z.object({ next: z.int().nullable(), encrypted: z.int(), unreadable: z.int() }),
      ]),
    ),
    /** Records that nothing is left under another key than the newest. */
    retire: operation('PUT', nothing, z.union([noKey, z.literal('retired')])),
  },
  /** Of a running gateway's database and chain; the current one first. */
  relayers: { list: operation('GET', nothing, z.array(relayerDescription).readonly()) },
} as const

export type KeyDescription = Readonly<z.output<typeof keyDescription>>
export type AccountDescription = Readonly<z.output<typeof accountDescription>>
export type BudgetOrder = Readonly<z.output<typeof budgetOrder>>
export type BudgetDescription = Readonly<z.output<typeof budgetDescription>>
export type UsageQuery = Readonly<z.output<typeof usageQuery>>
export type UsageRow = Readonly<z.output<typeof usageRow>>
export type AdminAct = Readonly<z.output<typeof adminAct>>
export type AdminActQuery = Readonly<z.output<typeof adminActQuery>>
export type AdminLogCheck = Readonly<z.output<typeof adminLogCheck>>
export type EnclaveDescription = Readonly<z.output<typeof enclaveDescription>>
export type RelayerDescription = Readonly<z.output<typeof relayerDescription>>

type Resource = keyof typeof CONTROL_OPERATIONS

/**
 * The operations of a resource as functions, for the side that does them and the side that asks.
 */
type OperationsOf<Name extends Resource> = {
  readonly [Verb in keyof (typeof CONTROL_OPERATIONS)[Name]]: (typeof CONTROL_OPERATIONS)[Name][Verb] extends Operation<
    infer Order,
    infer Result
  >
    ? undefined extends Order
      ? () => Promise<Result>
      : (order: Order) => Promise<Result>
    : never
}

export type KeyOperations = OperationsOf<'keys'>
export type AccountOperations = OperationsOf<'accounts'>
export type BudgetOperations = OperationsOf<'budgets'>
export type UsageOperations = OperationsOf<'usage'>
export type AdminLogOperations = OperationsOf<'adminLog'>
export type EnclaveOperations = OperationsOf<'enclaves'>
export type RelayerOperations = OperationsOf<'relayers'>
export type ErasureOperations = OperationsOf<'erasures'>
export type RetentionOperations = OperationsOf<'retention'>
export type ContentOperations = OperationsOf<'content'>

/** What the operator does on the command line. */
export type Operations = {
  readonly keys: KeyOperations
  readonly accounts: AccountOperations
  readonly adminLog: AdminLogOperations
  readonly budgets: BudgetOperations
  readonly usage: UsageOperations
  readonly erasures: ErasureOperations
  readonly retention: RetentionOperations
  readonly content: ContentOperations
}

/** The same, and what only a running gateway can do. */
export type GatewayOperations = { readonly [Name in Resource]: OperationsOf<Name> }

/** What a gateway does: some have no enclaves or relayers to be asked about. */
export type ServedOperations = Pick<Operations, 'keys' | 'accounts'> & Partial<GatewayOperations>

/** Who asks for something to be done, and from where. */
export type Operator = {
  /** As in an act. */
  readonly who: string
  /** The key's account; null for an operator. */
  readonly accountId: string | null
  readonly from: string
}

/** Operations, done in the name of the operator who asks. */
export type OperatorOf<Asked> = (operator: Operator) => Asked

/** Header in which the command line says the id of its user, in digits. */
export const OPERATOR_UID_HEADER = 'x-affidavit-uid'

/** How an operator is named, by his user's id; null where it is not known. */
export function nameOperator(uid: string | null): string {
  return uid === null || !/^\d{1,10}$/.test(uid) ? 'operator' : `operator (uid ${uid})`
}

/** Name of the file in the data folder that says where the running gateway can be asked. */
export const CONTROL_FILE = 'control.json'

/** What CONTROL_FILE holds. */
export type ControlAddress = { readonly socket: string; readonly pid: number }
