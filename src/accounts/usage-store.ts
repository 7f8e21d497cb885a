import { sql } from 'kysely'
import { z } from 'zod'
import { nameText } from '../api/schemas.ts'
import { clockSeconds, type StoreClock } from '../storage/clock.ts'
import type { Database } from '../storage/database.ts'
import { SECONDS_PER_DAY } from './rate-limits-store.ts'

/** What a report of usage distinguishes. */
export const USAGE_DIMENSIONS = ['account', 'key', 'operation', 'model'] as const

/** Usage of the periods that begin from `from` to before `until`. */
export const usageQuery = z.object({
  /** Null: all accounts, or all keys. */
  account: nameText.nullable(),
  key: z.string().nullable(),
  from: z.int(),
  until: z.int(),
  /** In UTC; `total`: all of the range is one. */
  per: z.enum(['hour', 'day', 'month', 'total']),
  by: z.array(z.enum(USAGE_DIMENSIONS)).readonly(),
})
export type UsageQuery = Readonly<z.output<typeof usageQuery>>

/**
 * Sums of one period. A member is null where the report does not divide by it, or it is not known.
 */
export const usageRow = z.object({
  /** Begin of the period. */
  start: z.int(),
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
export type UsageRow = Readonly<z.output<typeof usageRow>>

/** So long usage is kept by hours; then by days. */
export const USAGE_HOURS_AGE_MAX_SECONDS = 90 * SECONDS_PER_DAY

/** So long it is kept by days: three years and the day of a leap year. */
export const USAGE_AGE_MAX_SECONDS = 1_096 * SECONDS_PER_DAY

/** Rows of one report, at most. */
export const USAGE_ROWS_MAX = 50_000

/** Of one account by its id, of one by its name, or of all. */
type AccountsQuery = Omit<UsageQuery, 'account'> & {
  readonly account: { readonly id: string } | { readonly name: string } | null
}

/** What accounts used over time. Every method throws the driver's error when the database fails. */
export type UsageStore = {
  /**
   * Adds up what is kept, oldest period first; `too_many` rather than more than USAGE_ROWS_MAX
   * rows. By hours what is kept by days is left out. The range is the caller's to bound.
   */
  report(query: AccountsQuery): Promise<readonly UsageRow[] | 'too_many' | 'unknown_account'>
  /**
   * Adds hours older than USAGE_HOURS_AGE_MAX_SECONDS to their days, and removes days older than
   * USAGE_AGE_MAX_SECONDS.
   */
  prune(): Promise<void>
}

/** Usage on the database's shared connections; rate-limits-store.ts counts it. */
export function createUsageStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): UsageStore {
  const daysAgo = (seconds: number) => sql`${clockSeconds(clock)} - ${seconds}::bigint`
  return {
    async report({ account, key, from, until, per, by }) {
      const [id, name] = [idOf(account), nameOf(account)]
      const is = (dimension: UsageQuery['by'][number]) => sql`${by.includes(dimension)}::boolean`
      // Of rows from before keys and models were counted both are unknown: no key's id is empty.
      const { rows } = await sql<UsageRow>`
        select * from (
          select case ${per}::text when 'hour' then u.hour_at when 'total' then ${from}::bigint
              else budget_window(${per}::text, u.hour_at, 0) end as start,
            case when ${is('account')} then coalesce(a.former_name, a.name, u.account_id::text) end as account,
            case when ${is('account')} then u.account_id::text end as account_id,
            case when ${is('key')} then nullif(u.key_id, '') end as key,
            case when ${is('operation')} then u.operation end as operation,
            case when ${is('operation')} then u.family end as family,
            case when ${is('model')} and u.key_id <> '' then u.model end as model,
            ${capped(sql`sum(u.requests)`)} as requests,
            ${capped(sql`sum(u.tokens)`)} as tokens,
            ${capped(sql`sum(u.prompt_tokens)`)} as prompt_tokens,
            ${capped(sql`sum(u.completion_tokens)`)} as completion_tokens,
            ${capped(sql`greatest(0, sum(u.tokens) - sum(u.prompt_tokens) - sum(u.completion_tokens))`)} as unsplit_tokens,
            sum(u.money)::text as money,
            ${capped(sql`sum(u.unpriced_requests)`)} as unpriced_requests
          from usage_hours u left join accounts a on a.id = u.account_id
          where u.hour_at >= ${from}::bigint and u.hour_at < ${until}::bigint
            and (${id}::uuid is null or u.account_id = ${id}::uuid)
            and (${name}::text is null or a.name = ${name}::text)
            and (${key}::text is null or u.key_id = ${key}::text)
            and (${per}::text <> 'hour' or u.hour_at >= ${daysAgo(USAGE_HOURS_AGE_MAX_SECONDS)})
          group by 1, 2, 3, 4, 5, 6, 7
        ) as sums
        order by start, account collate "C", account_id, key collate "C", operation collate "C",
          family collate "C", model collate "C"
        limit ${USAGE_ROWS_MAX + 1}::bigint`.execute(queries)
      if (rows.length > USAGE_ROWS_MAX) return 'too_many'
      if (rows.length > 0 || name === null) return rows
      const known = await sql`select from accounts where name = ${name}`.execute(queries)
      return known.rows.length === 0 ? 'unknown_account' : rows
    },
    async prune() {
      await sql`
        with folded as (
          delete from usage_hours
          where hour_at % ${SECONDS_PER_DAY}::bigint <> 0 and hour_at < ${daysAgo(USAGE_HOURS_AGE_MAX_SECONDS)}
          returning *
        )
        insert into usage_hours as known (account_id, hour_at, operation, family, key_id, model,
            requests, tokens, prompt_tokens, completion_tokens, money, unpriced_requests)
          select account_id, hour_at - hour_at % ${SECONDS_PER_DAY}::bigint, operation, family, key_id, model,
            ${capped(sql`sum(requests)`)}, ${capped(sql`sum(tokens)`)}, ${capped(sql`sum(prompt_tokens)`)},
            ${capped(sql`sum(completion_tokens)`)}, ${capped(sql`sum(money)`)}, ${capped(sql`sum(unpriced_requests)`)}
          from folded group by 1, 2, 3, 4, 5, 6
          order by 1, 2, operation collate "C", family collate "C", key_id collate "C", model collate "C"
          on conflict (account_id, hour_at, operation, family, key_id, model) do update set
            requests = ${capped(sql`known.requests::numeric + excluded.requests`)},
            tokens = ${capped(sql`known.tokens::numeric + excluded.tokens`)},
            prompt_tokens = ${capped(sql`known.prompt_tokens::numeric + excluded.prompt_tokens`)},
            completion_tokens = ${capped(sql`known.completion_tokens::numeric + excluded.completion_tokens`)},
            money = ${capped(sql`known.money::numeric + excluded.money`)},
            unpriced_requests = ${capped(sql`known.unpriced_requests::numeric + excluded.unpriced_requests`)}`.execute(
        queries,
      )
      await sql`delete from usage_hours where hour_at < ${daysAgo(USAGE_AGE_MAX_SECONDS)}`.execute(
        queries,
      )
    },
  }
}

/** What a JSON number holds, at most. */
function capped(sum: ReturnType<typeof sql>) {
  return sql`least(${sum}, ${Number.MAX_SAFE_INTEGER}::bigint)::bigint`
}

function idOf(account: AccountsQuery['account']): string | null {
  return account !== null && 'id' in account ? account.id : null
}

function nameOf(account: AccountsQuery['account']): string | null {
  return account !== null && 'name' in account ? account.name : null
}
