import { z } from 'zod'
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
  created_at: unixSeconds,
  /** Null for never. */
  expires_at: unixSeconds.nullable(),
  /** Null while it is valid. */
  revoked_at: unixSeconds.nullable(),
  /** To the minute; null before the first use. */
  last_used_at: unixSeconds.nullable(),
})

/** A key to be made; its account, by name, is made when there is none. */
const keyOrder = z.object({
  account: name,
  name,
  scopes: z.array(z.enum(SCOPES)).min(1).readonly(),
  /** Null for never. */
  expires_at: unixSeconds.nullable(),
})

/** An account as it is shown. */
const accountDescription = z.object({
  id: z.string(),
  name: z.string(),
  /** Null for the standard one. */
  tier: z.string().nullable(),
  created_at: unixSeconds,
})

/** An enclave as it is shown. */
const enclaveDescription = z.object({
  /** `unix:/path`, by which it is named. */
  url: z.string(),
  /**
   * `usable`, `draining`, `drained`, `refused`, `unreachable` or `connecting`
   * (src/enclaves/enclave-endpoint.ts).
   */
  state: z.string(),
  /** Null before it answered. */
  notary: z.string().nullable(),
  /** Calls in flight. */
  calls: z.int(),
  /** Leaves of its log in the database; null when it is not followed. */
  committed: z.int().nullable(),
  /** Why it is refused or out of reach; else empty. */
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
  /** When the oldest unconfirmed one was made; null for none. */
  oldest_at: unixSeconds.nullable(),
  /**
   * What the chain has: decimal wei, transactions in blocks, and those with the ones that wait for
   * one. Null while it is away.
   */
  balance_wei: z.string().nullable(),
  chain_nonce: z.int().nullable(),
  pending_nonce: z.int().nullable(),
  /** Why the chain could not be asked; else empty. */
  fault: z.string(),
})

const enclaveUrl = z.string().describe('the url of an enclave')
const nothing = z.undefined()

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
      keyDescription.extend({ key: z.string() }),
    ),
    list: operation('GET', nothing, z.array(keyDescription).readonly()),
    /**
     * Ends a key within a second. `unknown` for an id that no key has; revoking twice is no fault.
     */
    revoke: operation(
      'DELETE',
      z.string().describe('the id of a key'),
      z.enum(['revoked', 'unknown']),
    ),
  },
  accounts: {
    /** Makes the account, when there is none of that name; its tier is left as it is. */
    open: operation('POST', name.describe('a name'), accountDescription),
    list: operation('GET', nothing, z.array(accountDescription).readonly()),
    /**
     * Null is the standard tier. `unknown_tier` for one that the gateway does not have; where that
     * is not known, any is taken.
     */
    setTier: operation(
      'PUT',
      z.object({ name, tier: name.nullable() }).describe('a name and a tier'),
      z.enum(['set', 'unknown_account', 'unknown_tier']),
    ),
  },
  /**
   * Of a running gateway. What is changed lasts until it stops: then ENCLAVE_URL says which there
   * are.
   */
  enclaves: {
    list: operation('GET', nothing, z.array(enclaveDescription).readonly()),
    /** Takes it into use once it is checked; one that was drained, again. */
    add: operation('POST', enclaveUrl, z.enum(['done', 'invalid', 'limit'])),
    /** No new calls. Does not wait until it is drained, which `list` shows. */
    drain: operation('PUT', enclaveUrl, z.enum(['done', 'invalid', 'unknown'])),
    /** Forgets one that is not in use. */
    remove: operation('DELETE', enclaveUrl, z.enum(['done', 'invalid', 'unknown', 'in_use'])),
  },
  /** Of a running gateway's database and chain; the current one first. */
  relayers: { list: operation('GET', nothing, z.array(relayerDescription).readonly()) },
} as const

export type KeyDescription = Readonly<z.output<typeof keyDescription>>
export type AccountDescription = Readonly<z.output<typeof accountDescription>>
export type EnclaveDescription = Readonly<z.output<typeof enclaveDescription>>
export type RelayerDescription = Readonly<z.output<typeof relayerDescription>>

type Resource = keyof typeof CONTROL_OPERATIONS

/** The operations of a resource as functions: those who do them have them, and those who ask. */
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
export type EnclaveOperations = OperationsOf<'enclaves'>
export type RelayerOperations = OperationsOf<'relayers'>

/** What the operator does on the command line. */
export type Operations = { readonly keys: KeyOperations; readonly accounts: AccountOperations }

/** The same, and what only a running gateway can do. */
export type GatewayOperations = { readonly [Name in Resource]: OperationsOf<Name> }

/** What a gateway does: some have no enclaves or relayers to be asked about. */
export type ServedOperations = Operations & Partial<GatewayOperations>

/** Name of the file in the data folder that says where the running gateway can be asked. */
export const CONTROL_FILE = 'control.json'

/** What CONTROL_FILE holds. */
export type ControlAddress = { readonly socket: string; readonly pid: number }
