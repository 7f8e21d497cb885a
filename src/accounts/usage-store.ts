import { sql } from 'kysely'
import { z } from 'zod'
import { nameText } from '../api/schemas.ts'
import { clockSeconds, type StoreClock } from '../storage/clock.ts'
import type { Database } from '../storage/database.ts'
import { SECONDS_PER_DAY } from './rate-limits-store.ts'

export const USAGE_DIMENSIONS = ['account', 'key', 'operation', 'model'] as const

/** Periods that start at `from` or later, and before `until`. */
export const usageQuery = z.object({
  /** Null selects all accounts, or all keys. */
  account: nameText.nullable(),
  key: z.string().nullable(),
  from: z.int(),
  until: z.int(),
  /** In UTC. With `total`, the whole range is one period. */
  per: z.enum(['hour', 'day', 'month', 'total']),
  by: z.array(z.enum(USAGE_DIMENSIONS)).readonly(),
})
export type UsageQuery = Readonly<z.output<typeof usageQuery>>

/**
 * A member is null if the report is not divided by this dimension, or if the value is not known.
 */
export const usageRow = z.object({
  start: z.int(),
  /** The former name if the account was deleted. */
  account: z.string().nullable(),
  account_id: z.string().nullable(),
  key: z.string().nullable(),
  operation: z.string().nullable(),
  family: z.string().nullable(),
  /** Empty for calls without a model. `*`: the further models of an hour with too many models. */
  model: z.string().nullable(),
  requests: z.int(),
  tokens: z.int(),
  /** Tokens of calls whose prompt and answer are counted separately. */
  prompt_tokens: z.int(),
  completion_tokens: z.int(),
  /** Tokens of calls whose prompt and answer are not counted separately. */
  unsplit_tokens: z.int(),
  /** The total cost of the requests that have a price: billionths as decimal digits. */
  money: z.string().regex(/^\d+$/),
  unpriced_requests: z.int(),
})
export type UsageRow = Readonly<z.output<typeof usageRow>>

/** Older usage is stored by days. */
export const USAGE_HOURS_AGE_MAX_SECONDS = 90 * SECONDS_PER_DAY

/** Three years, one of them a leap year. */
export const USAGE_AGE_MAX_SECONDS = 1_096 * SECONDS_PER_DAY

export const USAGE_ROWS_MAX = 50_000

type AccountsQuery = Omit<UsageQuery, 'account'> & {
  readonly account: { readonly id: string } | { readonly name: string } | null
}

/** Every method throws the driver's error when the database fails. */
export type UsageStore = {
  /**
   * Oldest period first. `too_many` for more than USAGE_ROWS_MAX rows. A report by hours leaves out
   * usage that is stored by days. The caller must limit the range.
   */
  report(query: AccountsQuery): Promise<readonly UsageRow[] | 'too_many' | 'unknown_account'>
  /**
   * Merges hours older than USAGE_HOURS_AGE_MAX_SECONDS into days. Removes days older than
   * USAGE_AGE_MAX_SECONDS.
   */
  prune(): Promise<void>
}

/** The counting is in rate-limits-store.ts. */
export function createUsageStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): UsageStore {
  const daysAgo = (seconds: number) => sql`${clockSeconds(clock)} - ${seconds}::bigint`
  return {
    async report({ account, key, from, until, per, by }) {
      const { id = null, name = null }: { id?: string | null; name?: string | null } = account ?? {}
      const is = (dimension: UsageQuery['by'][number]) => sql`${by.includes(dimension)}::boolean`
      // Rows from before usage was counted by key and model have an empty key id. Their key and
      // model are unknown.
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

/** Limits a sum to the largest integer that a JSON number holds exactly. */
function capped(sum: ReturnType<typeof sql>) {
  return sql`least(${sum}, ${Number.MAX_SAFE_INTEGER}::bigint)::bigint`
}
