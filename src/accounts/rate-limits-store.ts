import { sql } from 'kysely'
import { clockArgument, clockSeconds, type StoreClock } from '../storage/clock.ts'
import type { Database } from '../storage/database.ts'

/** Null means that there is no limit. */
export type RateLimits = {
  readonly requestsPerMinute: number | null
  readonly tokensPerMinute: number | null
  readonly requestsPerDay: number | null
  readonly tokensPerDay: number | null
}

/** `minute` and `day` identify the windows: whole minutes and whole days since 1970 (UTC). */
export type UsedWindows = {
  readonly minute: number
  readonly minuteRequests: number
  readonly minuteTokens: number
  readonly day: number
  readonly dayRequests: number
  readonly dayTokens: number
}

/** Finished calls that one process admitted in the same windows. */
export type Settlement = {
  /** Null when nothing was reserved. */
  readonly processId: string | null
  readonly minute: number
  readonly day: number
  /** Tokens that the calls reserved. */
  readonly reserved: number
  readonly used: number
  /**
   * Tokens beyond the reservations. If the calls' window has ended, these tokens count in the
   * current window.
   */
  readonly excess: number
}

/** The calls from one account to one group of models. */
export type LimitBucket = {
  readonly accountId: string
  readonly group: string
  readonly limits: RateLimits
  /** Tokens that each new call reserves, in the order of the calls. */
  readonly estimates: readonly number[]
  readonly settlements: readonly Settlement[]
}

/** Finished calls with the same key, kind and model. */
export type KeyUsage = {
  readonly accountId: string
  /** Public id. */
  readonly keyId: string
  readonly operation: string
  readonly family: string
  /** Contains no control characters. Its length is limited. */
  readonly model: string
  readonly requests: number
  readonly tokens: number
  /** Sum over calls whose prompt and answer were counted separately. */
  readonly promptTokens: number
  readonly completionTokens: number
  /** Sum over the requests that have a price, in billionths. */
  readonly money: number
  readonly unpricedRequests: number
}

/** `used` is the use after the call. */
export type StepOutcome = { readonly isAdmitted: boolean; readonly used: UsedWindows }

type LimitStep = {
  readonly processId: string
  /** For how many seconds other processes believe that this process is alive. */
  readonly leaseSeconds: number
  /** Rises with each new batch of a process. Null if there are no settlements and no usages. */
  readonly batch: number | null
  readonly buckets: readonly LimitBucket[]
  /** The usages count in the hour in which the step runs. */
  readonly usages: readonly KeyUsage[]
}

/** Every method throws the driver's error when the database fails. */
export type RateLimitsStore = {
  /**
   * Runs one atomic step: counts the settlements, then admits as many new calls as fit. Returns the
   * outcome of every estimate, bucket by bucket. `at` is Unix seconds. Settlements and usages of a
   * failed step may be sent again with the same batch number: they are counted only once.
   */
  step(
    step: LimitStep,
  ): Promise<{ readonly at: number; readonly outcomes: readonly StepOutcome[][] }>
  /** Returns the use in the current windows, by group. */
  read(
    accountId: string,
  ): Promise<{ readonly at: number; readonly used: ReadonlyMap<string, UsedWindows> }>
}

export const SECONDS_PER_MINUTE = 60
export const SECONDS_PER_DAY = 86_400

/** The code that counts is in migrations/initial/steps.ts. */
export function createRateLimitsStore(
  { queries }: Pick<Database, 'queries'>,
  clock: StoreClock = null,
): RateLimitsStore {
  return {
    async step({ processId, leaseSeconds, batch, buckets, usages }) {
      // Every gateway locks rows in this order, to avoid deadlocks.
      const order = [...buckets.keys()].sort((left, right) =>
        compare(buckets[left], buckets[right]),
      )
      const sorted = order.map((place) => describeBucket(buckets[place]))
      const { rows } = await sql<{ result: StepResult }>`
        select usage_step(${processId}::uuid, ${leaseSeconds}::bigint, ${batch}::bigint,
          ${JSON.stringify(sorted)}::text::json, ${JSON.stringify(usages.map(describeUsage))}::text::json,
          ${clockArgument(clock)}) as result`.execute(queries)
      const result = rows[0]?.result
      if (result === undefined) throw new Error('expected a result of usage_step')
      const outcomes: StepOutcome[][] = buckets.map(() => [])
      let next = 0
      for (const place of order) {
        const count = buckets[place]?.estimates.length ?? 0
        outcomes[place] = result.outcomes.slice(next, next + count).map(toOutcome)
        next += count
      }
      return { at: result.at, outcomes }
    },
    async read(accountId) {
      const [found, time] = await Promise.all([
        queries
          .selectFrom('rate_limit_windows')
          .selectAll()
          .where('account_id', '=', accountId)
          .execute(),
        sql<{ at: number }>`select ${clockSeconds(clock)} as at`.execute(queries),
      ])
      const at = time.rows[0]?.at ?? 0
      const minute = Math.floor(at / SECONDS_PER_MINUTE)
      const day = Math.floor(at / SECONDS_PER_DAY)
      const used = found.map((row) => {
        const isThisMinute = row.minute >= minute
        const isThisDay = row.day >= day
        const windows: UsedWindows = {
          minute: Math.max(minute, row.minute),
          minuteRequests: isThisMinute ? row.minute_requests : 0,
          minuteTokens: isThisMinute ? row.minute_tokens : 0,
          day: Math.max(day, row.day),
          dayRequests: isThisDay ? row.day_requests : 0,
          dayTokens: isThisDay ? row.day_tokens : 0,
        }
        return [row.group_name, windows] as const
      })
      return { at, used: new Map(used) }
    },
  }
}

type StepResult = {
  readonly at: number
  readonly outcomes: readonly (readonly [boolean, number, number, number, number, number, number])[]
}

function describeBucket(bucket: LimitBucket | undefined) {
  if (bucket === undefined) throw new RangeError('expected a bucket')
  const { accountId, group, limits, estimates, settlements } = bucket
  return {
    account: accountId,
    name: group,
    minute_requests: limits.requestsPerMinute,
    minute_tokens: limits.tokensPerMinute,
    day_requests: limits.requestsPerDay,
    day_tokens: limits.tokensPerDay,
    estimates,
    settlements: settlements.map(({ processId, ...settlement }) => ({
      process: processId,
      ...settlement,
    })),
  }
}

function describeUsage(usage: KeyUsage) {
  const { accountId, keyId, operation, family, model, requests, tokens, money } = usage
  return {
    account: accountId,
    key: keyId,
    operation,
    family,
    model,
    requests,
    tokens,
    money,
    prompt: usage.promptTokens,
    completion: usage.completionTokens,
    unpriced: usage.unpricedRequests,
  }
}

function compare(left: LimitBucket | undefined, right: LimitBucket | undefined): number {
  const [a, b] = [`${left?.accountId} ${left?.group}`, `${right?.accountId} ${right?.group}`]
  return a < b ? -1 : a > b ? 1 : 0
}

function toOutcome([isAdmitted, ...used]: StepResult['outcomes'][number]): StepOutcome {
  const [minute, minuteRequests, minuteTokens, day, dayRequests, dayTokens] = used
  return { isAdmitted, used: { minute, minuteRequests, minuteTokens, day, dayRequests, dayTokens } }
}
