import { sql } from 'kysely'
import { z } from 'zod'
import { clockArgument, clockSeconds, type StoreClock } from '../storage/clock.ts'
import type { Database } from '../storage/database.ts'
import type { Queries } from '../storage/tables.ts'
import { KEY_ID_FORM } from './api-keys.ts'
import { keyFamily } from './keys-store.ts'

/** Amounts are those of the current period. */
export const budgetDescription = z.object({
  account: z.string(),
  /** Public id. Null if the budget is for the whole account. */
  key: z.string().nullable(),
  what: z.enum(['requests', 'tokens', 'money']),
  per: z.enum(['day', 'month', 'total']),
  /** Money is in billionths, here and in `used` and `left`. */
  bound: z.int(),
  used: z.int(),
  left: z.int(),
  /** Unix seconds. Null if the period never ends. */
  renews_at: z.int().nullable(),
})
export type BudgetDescription = Readonly<z.output<typeof budgetDescription>>

export type BudgetOrder = Pick<BudgetDescription, 'key' | 'what' | 'per'> & {
  /** Null selects the key's account. */
  readonly account: string | null
  /** Null removes the budget. */
  readonly bound: number | null
}

/** Money is in billionths. Null if the cost is not known. */
type BudgetedCall = {
  readonly callId: string
  readonly processId: string
  readonly accountId: string
  readonly keyId: string
  readonly tokens: number
  readonly money: number | null
}

/** `requests` is 0 if the call was not made. */
export type BudgetUse = {
  readonly callId: string
  readonly accountId: string
  readonly keyId: string
  readonly requests: 0 | 1
  readonly tokens: number
  readonly money: number
}

/** The budget that is too small for the call. */
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

/** A null member selects all budgets. */
type BudgetQuery = {
  readonly accountId?: string | null
  readonly accountName?: string | null
  /** `withAccount` adds the budgets of the key's whole account. */
  readonly keyId?: string | null
  readonly withAccount?: boolean
  /** The last budget of the previous page. */
  readonly after?: BudgetName | null
  readonly limit?: number | null
}

export type BudgetName = Pick<BudgetDescription, 'account' | 'key' | 'what' | 'per'>

/** Every method throws the driver's error when the database fails. */
export type BudgetsStore = {
  /**
   * Removes the budget if the bound is null. A new bound keeps the amount used in the current
   * period. A new budget begins with the amount that running calls reserved in other budgets.
   */
  set(order: BudgetOrder): Promise<'set' | 'unknown_account' | 'unknown_key'>
  /**
   * Returns the ids of the valid keys that the key made for its account, that those keys made, and
   * so on, in the order of creation. A budget of the key does not bound them.
   */
  listUnbounded(keyId: string): Promise<readonly string[]>
  /** Ordered by account name and key id. */
  list(query?: BudgetQuery): Promise<readonly BudgetDescription[]>
  /**
   * Reserves in all budgets of the call or in none. Null on success. Rejects for a call that is
   * already settled.
   */
  reserve(call: BudgetedCall): Promise<BudgetRefusal | null>
  /** Settles each call once, even if a settlement is sent several times. */
  settle(processId: string, uses: readonly BudgetUse[]): Promise<void>
  /** Releases the amounts that dead processes reserved. */
  expire(): Promise<void>
}

/** The code that counts is in migrations/initial/steps.ts. */
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
      else {
        const put = (inside: Queries) =>
          putBudget(inside, { accountId: found.id, keyId: key ?? '', what, per, bound }, clock)
        await (queries.isTransaction ? put(queries) : queries.transaction().execute(put))
      }
      return 'set'
    },
    async listUnbounded(keyId) {
      const { rows } = await sql<{ readonly id: string }>`
        with recursive ${keyFamily(keyId)}
        select k.id from api_keys k join family on family.id = k.id
        where k.id <> ${keyId}::text and k.revoked_at is null
          and coalesce(k.expires_at > ${clockSeconds(clock)}, true)
        order by k.created_at, k.position`.execute(queries)
      return rows.map((row) => row.id)
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

/**
 * A settlement subtracts its call's reservation from all budgets of the call, so a new budget
 * begins with the open reservations of its current period. Must run in a transaction.
 */
async function putBudget(
  inside: Queries,
  budget: Pick<BudgetOrder, 'what' | 'per'> &
    Pick<BudgetedCall, 'accountId' | 'keyId'> & { readonly bound: number },
  clock: StoreClock,
): Promise<void> {
  const { accountId, keyId, what, per, bound } = budget
  // A setter that hangs with the lock would keep all calls with a budget waiting.
  await sql`set local idle_in_transaction_session_timeout = '2s'`.execute(inside)
  // Waits for running reservations and settlements, and stops further ones until the commit. So
  // each of them is either in the sum below, or finds the new row.
  await sql`lock table budgets in exclusive mode`.execute(inside)
  await sql`
    insert into budgets (account_id, key_id, what, per, bound, used, window_at)
    select ${accountId}::uuid, ${keyId}, ${what}, ${per}, ${bound}::bigint,
      least(case ${what} when 'requests' then count(c.call_id) when 'tokens' then coalesce(sum(c.tokens), 0)
        else coalesce(sum(c.money), 0) end, 9007199254740991)::bigint, this.window_at
    from (select budget_window(${per}, ${clockSeconds(clock)}, 0) as window_at) as this
      left join budget_calls c on c.settled_at is null and c.account_id = ${accountId}::uuid
        and ${keyId} in ('', c.key_id) and budget_window(${per}, c.at, 0) = this.window_at
    group by this.window_at
    on conflict (account_id, key_id, what, per) do update set bound = excluded.bound`.execute(
    inside,
  )
}
