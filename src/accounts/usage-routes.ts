import { z } from 'zod'
import type { RouteContext } from '../api/context.ts'
import { ApiError, unfitFor } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { integerText, nameText, patternText, unixSeconds } from '../api/schemas.ts'
import { keyIdText } from './api-keys.ts'
import { CALL_KINDS } from './limits/tiers.ts'
import { SECONDS_PER_DAY } from './rate-limits-store.ts'
import { reportSums, sumRows, usageCsv } from './usage-report.ts'
import {
  USAGE_DIMENSIONS,
  USAGE_ROWS_MAX,
  type UsageQuery,
  type UsageRow,
  type UsageStore,
} from './usage-store.ts'

/** Maximum number and default number of periods in an answer. */
const PERIODS = {
  hour: { max: 7 * 24, unasked: 24 },
  day: { max: 366, unasked: 30 },
  month: { max: 36, unasked: 12 },
} as const
type Period = keyof typeof PERIODS

const SECONDS_PER_HOUR = 3_600

/** Unix seconds, in the year 9999. */
const TIME_MAX = 253_402_300_799

const time = integerText({ min: 0, max: TIME_MAX }).nullable().default(null)

function dimensions(names: readonly [string, ...string[]], unasked: string) {
  const one = `(${names.join('|')})`
  return patternText(
    new RegExp(`^${one}(,${one}){0,3}$`),
    'value_error',
    `some of ${names.join(', ')}, separated by commas`,
  ).default(unasked)
}

/**
 * The range starts with the period that contains `since` and ends before `until`. If `until` is
 * null, the range includes the current period.
 */
const range = {
  since: time,
  until: time,
  per: z.enum(['hour', 'day', 'month']).default('day'),
  format: z.enum(['json', 'csv']).nullable().default(null),
  key: keyIdText.nullable().default(null),
}
const usageQuery = z.object({
  ...range,
  by: dimensions(['key', 'operation', 'model'], 'operation'),
})
const adminQuery = z.object({
  ...range,
  account: nameText.nullable().default(null),
  by: dimensions(USAGE_DIMENSIONS, 'account'),
})
type Query = z.output<typeof usageQuery> & { readonly account?: string | null }

const count = z.int().min(0)
const sums = {
  requests: count,
  tokens: count,
  prompt_tokens: count
    .nullable()
    .describe(
      'Tokens of calls with separate counts for prompt and answer; null: there are no such calls',
    ),
  completion_tokens: count.nullable(),
  unsplit_tokens: count.describe('Tokens of the other calls'),
  money: z
    .string()
    .nullable()
    .describe('Decimal, in the unit of the price file; null: no request has a price'),
  unpriced_requests: count.describe('Requests that had no price, and are not in `money`'),
}

const usageReply = z.strictObject({
  since: unixSeconds.describe('Start of the first period'),
  until: unixSeconds.describe('Periods that begin from here on are left out'),
  per: z.enum(['hour', 'day', 'month']),
  ...sums,
  usage: z
    .array(
      z.strictObject({
        start: unixSeconds,
        account: z.string().optional(),
        account_id: z.string().optional(),
        key: z.string().nullable().optional().describe('Id; null: unknown'),
        operation: z.enum(CALL_KINDS).optional(),
        model_family: z
          .string()
          .optional()
          .describe('`none` without a model, `other` for an unknown one'),
        model: z
          .string()
          .nullable()
          .optional()
          .describe(
            'Empty for calls without a model; `*`: the other models of an hour with many; null: unknown',
          ),
        ...sums,
      }),
    )
    .describe('Oldest first; rows without use are left out. A row has the members that `by` names'),
})
export type UsageReply = z.output<typeof usageReply>

const CSV_TYPE = 'text/csv'

/**
 * `GET /v1/dashboard/usage` for the caller's account, `GET /v1/admin/usage` for all. Days are in
 * UTC.
 */
export function usageRoutes({
  usage,
  flush,
  now,
}: {
  readonly usage: Pick<UsageStore, 'report'>
  /** Counts the finished calls that are not counted yet. */
  readonly flush: () => Promise<void>
  /** Unix milliseconds. */
  readonly now: () => number
}): readonly Route[] {
  async function answer(
    context: RouteContext,
    query: Query,
    account: Parameters<UsageStore['report']>[0]['account'],
  ) {
    const { per, key } = query
    const { since, until } = rangeOf(query, Math.floor(now() / 1000))
    const by = USAGE_DIMENSIONS.filter((one) => query.by.split(',').includes(one))
    await flush()
    const rows = await usage.report({ account, key, from: since, until, per, by })
    if (rows === 'too_many')
      throw unfitFor('query', 'by', `Input should give at most ${USAGE_ROWS_MAX} rows`)
    if (rows === 'unknown_account')
      throw new ApiError('not_found', 'There is no account with this name')
    if (isCsvWanted(context, query)) {
      context.set('content-disposition', 'attachment; filename="usage.csv"')
      context.type = `${CSV_TYPE}; charset=utf-8; header=present`
      context.body = usageCsv(rows, { per, by })
      return undefined
    }
    const described = rows.map((row) => describeRow(row, by))
    return { since, until, per, ...reportSums(sumRows(rows)), usage: described }
  }

  const description =
    'CSV (`format=csv`, or `Accept: text/csv`) has one line for each row: the period in UTC in a ' +
    'column named `hour`, `day` (`2027-01-31`) or `month`, the members that `by` names, the sums.'
  const reply = {
    name: 'Usage',
    schema: usageReply,
    types: ['application/json', CSV_TYPE],
  }
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/dashboard/usage',
      tag: 'Account',
      summary: 'Use and cost of the account over time',
      description,
      scope: 'inference',
      query: usageQuery,
      reply,
      handler: ({ caller, context, query }) => answer(context, query, { id: caller().accountId }),
    }),
    defineRoute({
      tag: 'Administration',
      scope: 'admin',
      method: 'GET',
      path: '/v1/admin/usage',
      summary: 'Use and cost of accounts over time',
      description,
      query: adminQuery,
      reply,
      errors: ['not_found'],
      handler: ({ context, query }) =>
        answer(context, query, query.account === null ? null : { name: query.account }),
    }),
  ]
}

function isCsvWanted(context: RouteContext, { format }: Query): boolean {
  context.vary('accept')
  return (format ?? (context.accepts('json', CSV_TYPE) === CSV_TYPE ? 'csv' : 'json')) === 'csv'
}

function describeRow(row: UsageRow, by: UsageQuery['by']) {
  const { start, account, account_id, key, operation, family, model } = row
  return {
    start,
    ...(by.includes('account') ? { account, account_id } : {}),
    ...(by.includes('key') ? { key } : {}),
    ...(by.includes('operation') ? { operation, model_family: family } : {}),
    ...(by.includes('model') ? { model } : {}),
    ...reportSums(row),
  }
}

/** Throws ValidationError if the range ends before it starts, or has too many periods. */
function rangeOf(
  { since, until: asked, per }: Query,
  now: number,
): { readonly since: number; readonly until: number } {
  const { max, unasked } = PERIODS[per]
  const until = asked ?? later(per, now, 1)
  const begin = since === null ? later(per, until, -unasked) : later(per, since, 0)
  if ((since ?? begin) >= until) throw unfitFor('query', 'since', 'Input should be before until')
  if (later(per, begin, max) < until)
    throw unfitFor('query', 'since', `Input should be within ${max} ${per}s before until`)
  return { since: begin, until }
}

/**
 * Returns the start of the period that is `by` periods after the period of `at`. Never before 1970.
 */
function later(per: Period, at: number, by: number): number {
  if (per === 'month') {
    const date = new Date(at * 1000)
    return Math.max(0, Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + by) / 1000)
  }
  const seconds = per === 'day' ? SECONDS_PER_DAY : SECONDS_PER_HOUR
  return Math.max(0, at - (at % seconds) + by * seconds)
}
