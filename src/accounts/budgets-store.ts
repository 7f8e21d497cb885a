import { sql } from 'kysely'
import { z } from 'zod'
import { clockArgument, type StoreClock } from '../storage/clock.ts'
import type { Database } from '../storage/database.ts'
import { KEY_ID_FORM } from './api-keys.ts'

/** A budget of an account or a key, with its used and remaining amounts in the current period. */
export const budgetDescription = z.object({
  account: z.string(),
  /** Public id of a key. Null if the budget is for the whole account. */
  key: z.string().nullable(),
  what: z.enum(['requests', 'tokens', 'money']),
  per: z.enum(['day', 'month', 'total']),
  /** Amounts of money are in billionths, here and in the next two members. */
  bound: z.int(),
  used: z.int(),
  left: z.int(),
  /** End of the period, Unix seconds. Null if the period never ends. */
  renews_at: z.int().nullable(),
})
export type BudgetDescription = Readonly<z.output<typeof budgetDescription>>

/** Sets or removes a budget. */
export type BudgetOrder = Pick<BudgetDescription, 'key' | 'what' | 'per'> & {
  /** Name of the account. Null selects the key's account. */
  readonly account: string | null
  /** Null removes the budget. */
  readonly bound: number | null
}

/** A call that reserves in budgets. Money is in billionths, and null if the cost is not known. */
export type BudgetedCall = {
  readonly callId: string
  readonly processId: string
  readonly accountId: string
  readonly keyId: string
  readonly tokens: number
  readonly money: number | null
}

/** What a call really used. `requests` is 0 if the call was not made. */
export type BudgetUse = {
  readonly callId: string
  readonly accountId: string
  readonly keyId: string
  readonly requests: 0 | 1
  readonly tokens: number
  readonly money: number
}

/** The budget whose remaining amount is too small for the call. */
export type BudgetRefusal = {
  readonly what: 'requests' | 'tokens' | 'money'
  readonly per: 'day' | 'month' | 'total'
  readonly is_of_key: boolean
  readonly bound: number
  readonly used: number
  /** Null when the call's cost is not known. */
  readonly amount: number | null
  /** Unix seconds. Null if the budget never renews. */
  readonly renews_at: number | null
}

/** Selects the budgets that a query returns. A null member selects all budgets. */
export type BudgetQuery = {
  readonly accountId?: string | null
  readonly accountName?: string | null
  /** Public id of a key. `withAccount` adds the budgets of the key's whole account. */
  readonly keyId?: string | null
  readonly withAccount?: boolean
  /** The last budget of the previous page. */
  readonly after?: BudgetName | null
  readonly limit?: number | null
}

/** Identifies a budget. */
export type BudgetName = Pick<BudgetDescription, 'account' | 'key' | 'what' | 'per'>

/** Budgets. Every method throws the driver's error when the database fails. */
export type BudgetsStore = {
  /**
   * Sets a budget, or removes it if the bound is null. Keeps the amount used in the current period.
   * Returns `unknown_account` or `unknown_key` if that account or key was not found.
   */
  set(order: BudgetOrder): Promise<'set' | 'unknown_account' | 'unknown_key'>
  /** Lists budgets, ordered by account name and key id. Default: all budgets. */
  list(query?: BudgetQuery): Promise<readonly BudgetDescription[]>
  /** Reserves in all budgets of the call or in none, in one step. Returns null on success. */
  reserve(call: BudgetedCall): Promise<BudgetRefusal | null>
  /** Settles each call exactly once, even if a settlement is sent several times. */
  settle(processId: string, uses: readonly BudgetUse[]): Promise<void>
  /** Releases the amounts that dead processes reserved. */
  expire(): Promise<void>
}

/**
 * Budgets on the database's shared connections. The database itself counts
 * (migrations/initial/steps.ts).
 */
export function createBudgetsStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): BudgetsStore {
  return {
    async set({ account, key, what, per, bound }) {
      if (key !== null && !KEY_ID_FORM.test(key)) return 'unknown_key'
      const { rows } = await sql<{ id: string; has_key: boolean }>`
        select a.id, ${key}::text is null or exists (
          select from api_keys k where k.account_id = a.id and k.id = ${key}::text) as has_key
        from accounts a where a.deleted_at is null and case when ${account}::text is null
          then a.id = (select account_id from api_keys where id = ${key}::text) else a.name = ${account}::text end`.execute(
        queries,
      )
      const [found] = rows
      if (found === undefined) return account === null ? 'unknown_key' : 'unknown_account'
      if (!found.has_key) return 'unknown_key'
      if (bound === null)
        await sql`
          delete from budgets where account_id = ${found.id}::uuid and key_id = ${key ?? ''}
            and what = ${what} and per = ${per}`.execute(queries)
      else
        await sql`
          insert into budgets (account_id, key_id, what, per, bound)
          values (${found.id}::uuid, ${key ?? ''}, ${what}, ${per}, ${bound}::bigint)
          on conflict (account_id, key_id, what, per) do update set bound = excluded.bound`.execute(
          queries,
        )
      return 'set'
    },
    async list(query = {}) {
      const { accountId = null, accountName = null, keyId = null, withAccount = false } = query
      const { after = null, limit = null } = query
      const now = sql`coalesce(${clockArgument(clock)}, floor(extract(epoch from clock_timestamp()))::bigint)`
      const place = sql`(a.name collate "C", b.key_id collate "C", b.what collate "C", b.per collate "C")`
      const { rows } = await sql<Omit<BudgetDescription, 'left'>>`
        select a.name as account, nullif(b.key_id, '') as key, b.what, b.per, b.bound,
          case when budget_window(b.per, ${now}, 0) > b.window_at then 0 else b.used end as used,
          case b.per when 'total' then null else budget_window(b.per, ${now}, 1) end as renews_at
        from budgets b join accounts a on a.id = b.account_id
        where a.deleted_at is null
          and (${accountId}::uuid is null or b.account_id = ${accountId}::uuid)
          and (${accountName}::text is null or a.name = ${accountName}::text)
          and (${keyId}::text is null or b.key_id = ${keyId}::text or (${withAccount}::boolean and b.key_id = ''))
          and (${after === null}::boolean or ${place} > (${after?.account ?? ''}::text, ${after?.key ?? ''}::text,
            ${after?.what ?? ''}::text, ${after?.per ?? ''}::text))
        order by a.name collate "C", b.key_id collate "C", b.what collate "C", b.per collate "C"
        limit ${limit}::bigint`.execute(queries)
      return rows.map((row) => ({ ...row, left: Math.max(0, row.bound - row.used) }))
    },
    async reserve({ callId, processId, accountId, keyId, tokens, money }) {
      const { rows } = await sql<{ refusal: BudgetRefusal | null }>`
        select budget_reserve(${processId}::uuid, ${callId}::uuid, ${accountId}::uuid, ${keyId}::text,
          ${tokens}::bigint, ${money}::bigint, ${clockArgument(clock)}) as refusal`.execute(queries)
      return rows[0]?.refusal ?? null
    },
    async settle(processId, uses) {
      const order = ({ accountId, keyId }: BudgetUse) => `${accountId} ${keyId}`
      const sorted = uses.toSorted((a, b) => (order(a) < order(b) ? -1 : 1))
      const calls = sorted.map(({ callId: call, accountId: account, keyId: key, ...use }) => ({
        call,
        account,
        key,
        ...use,
      }))
      await sql`
        select budget_settle(${processId}::uuid, ${JSON.stringify(calls)}::text::json, ${clockArgument(clock)})`.execute(
        queries,
      )
    },
    async expire() {
      await sql`select expire_budget_calls(${clockArgument(clock)})`.execute(queries)
    },
  }
}
