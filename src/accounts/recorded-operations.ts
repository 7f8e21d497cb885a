import type {
  AdminLogOperations,
  GatewayOperations,
  Operator,
  OperatorOf,
  ServedOperations,
} from '../api/control-operations.ts'
import type { Database } from '../storage/database.ts'
import type { AdminLog, NewAct } from './admin-log-store.ts'
import { revocationsOf } from './managed-keys.ts'

/** Gives the operator's operations on a database, or inside of a transaction on it. */
type MakeOperations<Made> = (database: Pick<Database, 'queries'>) => Made

type Describe = (order: never, result: never) => readonly NewAct[]

/** An operation that changes nothing, or that continues what was recorded, is not recorded. */
const NOTHING = null

/** What is recorded of each operation: names and ids, never a secret. */
const ACTS: {
  readonly [Name in keyof GatewayOperations]: {
    readonly [Verb in keyof GatewayOperations[Name]]: Describe | typeof NOTHING
  }
} = {
  keys: {
    list: NOTHING,
    create: (
      { account, name, scopes, expires_at }: Order<'keys', 'create'>,
      { id, is_account_new }: Result<'keys', 'create'>,
    ) => [
      ...(is_account_new ? [{ kind: 'account.open', target: account }] : []),
      { kind: 'key.create', target: id, details: { account, name, scopes, expires_at } },
    ],
    revoke: (id: Order<'keys', 'revoke'>, ids: Result<'keys', 'revoke'>) =>
      revocationsOf(id, ids === 'unknown' ? null : ids),
  },
  accounts: {
    list: NOTHING,
    open: (name: Order<'accounts', 'open'>, { is_new }: Result<'accounts', 'open'>) =>
      is_new ? [{ kind: 'account.open', target: name }] : [],
    setTier: ({ name, tier }: Order<'accounts', 'setTier'>, outcome: string) => [
      { kind: 'account.set_tier', target: name, details: { tier }, outcome },
    ],
    setState: ({ name, state }: Order<'accounts', 'setState'>, outcome: string) => [
      { kind: `account.${VERBS[state]}`, target: name, outcome },
    ],
  },
  budgets: {
    list: NOTHING,
    set: (order: Order<'budgets', 'set'>, outcome: string) => [
      {
        kind: 'budget.set',
        target: order.key ?? order.account ?? '',
        details: { what: order.what, per: order.per, bound: order.bound },
        outcome,
      },
    ],
  },
  usage: { report: null },
  retention: {
    set: ({ name, days }: Order<'retention', 'set'>, outcome: string) => [
      { kind: 'retention.set', target: name, details: { days }, outcome },
    ],
  },
  erasures: {
    record: (
      { hash, reason }: Order<'erasures', 'record'>,
      { found, erased }: Result<'erasures', 'record'>,
    ) => [{ kind: 'erasure.record', target: hash, details: { reason, found, erased } }],
    account: ({ account, reason }: Order<'erasures', 'account'>, outcome: string) => [
      { kind: 'erasure.account', target: account, details: { reason }, outcome },
    ],
    remove: NOTHING,
  },
  content: {
    keys: NOTHING,
    // One run is many operations, from position 0 on.
    encrypt: (position: Order<'content', 'encrypt'>, result: Result<'content', 'encrypt'>) =>
      position === 0
        ? [
            {
              kind: 'content.encrypt',
              target: 'all',
              outcome: result === 'no_key' ? result : 'begun',
            },
          ]
        : [],
    retire: (_: Order<'content', 'retire'>, outcome: Result<'content', 'retire'>) => [
      { kind: 'content.retire', target: 'all', outcome },
    ],
  },
  adminLog: { list: NOTHING, check: NOTHING },
  relayers: { list: NOTHING },
  enclaves: {
    list: NOTHING,
    add: (url: string, outcome: string) => [{ kind: 'enclave.add', target: url, outcome }],
    drain: (url: string, outcome: string) => [{ kind: 'enclave.drain', target: url, outcome }],
    remove: (url: string, outcome: string) => [{ kind: 'enclave.remove', target: url, outcome }],
  },
}

const VERBS = { active: 'enable', disabled: 'disable', deleted: 'delete' } as const

/** What is done in the process, or in other transactions, is recorded when it is done. */
const OUTSIDE: readonly string[] = ['enclaves', 'content']

type Order<
  Name extends keyof GatewayOperations,
  Verb extends keyof GatewayOperations[Name],
> = GatewayOperations[Name][Verb] extends (order: infer Given) => unknown ? Given : never
type Result<
  Name extends keyof GatewayOperations,
  Verb extends keyof GatewayOperations[Name],
> = GatewayOperations[Name][Verb] extends (...order: never[]) => Promise<infer Given>
  ? Given
  : never

/**
 * Gives the operations that record what they do: those on the database in one transaction with what
 * they change. `make` is called for each operation, with the transaction.
 */
export function recordOperations<Made extends ServedOperations>({
  make,
  database,
  log,
}: {
  readonly make: MakeOperations<Made>
  readonly database: Pick<Database, 'queries'>
  readonly log: AdminLog
}): OperatorOf<Made & { readonly adminLog: AdminLogOperations }> {
  type Verbs = Readonly<Record<string, (order: unknown) => Promise<unknown>>>
  const verbsOf = (operations: Made, resource: string) =>
    (operations as unknown as Readonly<Record<string, Verbs>>)[resource] ?? {}

  return (actor) => {
    const plain = make(database)
    const recorded = Object.entries(plain).map(([resource, verbs]) => [
      resource,
      Object.fromEntries(
        Object.entries(verbs as Verbs).map(([verb, run]) => {
          const acts: Readonly<Record<string, unknown>> = ACTS[resource as keyof GatewayOperations]
          const describe = acts[verb] as ((order: unknown, result: unknown) => NewAct[]) | null
          if (typeof describe !== 'function') return [verb, run]
          return [verb, record({ resource, verb, describe, actor, run })]
        }),
      ),
    ])
    return {
      ...Object.fromEntries(recorded),
      adminLog: { list: log.list, check: log.check },
    }
  }

  function record({
    resource,
    verb,
    describe,
    actor,
    run,
  }: {
    readonly resource: string
    readonly verb: string
    readonly describe: (order: unknown, result: unknown) => readonly NewAct[]
    readonly actor: Operator
    readonly run: (order: unknown) => Promise<unknown>
  }): (order: unknown) => Promise<unknown> {
    if (OUTSIDE.includes(resource))
      return async (order) => {
        const result = await run(order)
        for (const act of describe(order, result)) await log.record(actor, act)
        return result
      }
    return (order) =>
      log.within(actor, async (inside, record) => {
        const result = await verbsOf(make(inside), resource)[verb]?.(order)
        for (const act of describe(order, result)) await record(act)
        return result
      })
  }
}
