import type { Face } from '../../api/faces.ts'
import {
  type RateLimits,
  type RateLimitsStore,
  SECONDS_PER_DAY,
  SECONDS_PER_MINUTE,
  type UsedWindows,
} from '../rate-limits-store.ts'
import type { Tier } from './tiers.ts'

type Measure = {
  readonly limit: number
  /** Never below 0, even if calls used more tokens than they reserved. */
  readonly remaining: number
  /** Until the window ends. */
  readonly resetSeconds: number
}

/** Each member is for the window (minute or day) with less quota left. Null means no limit. */
export type Quota = { readonly requests: Measure | null; readonly tokens: Measure | null }

export type QuotaRefusal = {
  readonly quota: Quota
  /** Time until the limit that refused the call allows calls again. */
  readonly retryAfterSeconds: number
  /** True if the call needs more than the limit of a whole window. Then a retry cannot help. */
  readonly isHopeless: boolean
  /** The limit that is too small. */
  readonly limit: 'requests' | 'tokens'
  readonly message: string
}

/** `at` is Unix seconds. */
export type QuotaUse = {
  readonly limits: RateLimits
  readonly used: UsedWindows
  readonly at: number
}

export function describeQuota(usage: QuotaUse): Quota {
  const all = measureAll(usage)
  return { requests: tightest(all.requests), tokens: tightest(all.tokens) }
}

export function describeRefusal(usage: QuotaUse, estimate: number): QuotaRefusal {
  const { requests, tokens } = measureAll(usage)
  const tooMany = requests.filter(({ remaining }) => remaining < 1)
  // Running calls can have used more than the limit. Then even a call without tokens is refused.
  const tooMuch = tokens.filter(({ limit, used }) => used + estimate > limit)
  const inTheWay = [...tooMany, ...tooMuch]
  const retryAfterSeconds = Math.max(1, ...inTheWay.map(({ resetSeconds }) => resetSeconds))
  const impossible = tooMuch.find(({ limit }) => limit < estimate)
  return {
    quota: describeQuota(usage),
    retryAfterSeconds,
    isHopeless: impossible !== undefined,
    limit: tooMany.length > 0 ? 'requests' : 'tokens',
    message:
      impossible === undefined
        ? `Rate limit reached: ${inTheWay.map((measure) => describe(measure, estimate)).join('; ')}. Try again in ${retryAfterSeconds} s`
        : `The request may use ${estimate} tokens, but the limit is ${impossible.limit} ${impossible.what}: ` +
          'shorten it, or ask for a shorter answer with max_tokens',
  }
}

/** `nowMs` is Unix milliseconds. */
export function quotaHeaders(
  { requests, tokens }: Quota,
  { limitHeaders }: Pick<Face, 'limitHeaders'>,
  nowMs: number,
): Readonly<Record<string, string>> {
  return {
    ...(requests && limitHeaders('requests', requests, nowMs)),
    ...(tokens && limitHeaders('tokens', tokens, nowMs)),
  }
}

type NamedMeasure = Measure & { readonly what: string; readonly used: number }

function measureAll({ limits, used, at }: QuotaUse): {
  readonly requests: readonly NamedMeasure[]
  readonly tokens: readonly NamedMeasure[]
} {
  const minuteReset = Math.max(1, (used.minute + 1) * SECONDS_PER_MINUTE - at)
  const dayReset = Math.max(1, (used.day + 1) * SECONDS_PER_DAY - at)
  const { requestsPerMinute, requestsPerDay, tokensPerMinute, tokensPerDay } = limits
  return {
    requests: [
      ...measure('requests per minute', requestsPerMinute, used.minuteRequests, minuteReset),
      ...measure('requests per day', requestsPerDay, used.dayRequests, dayReset),
    ],
    tokens: [
      ...measure('tokens per minute', tokensPerMinute, used.minuteTokens, minuteReset),
      ...measure('tokens per day', tokensPerDay, used.dayTokens, dayReset),
    ],
  }
}

function measure(
  what: string,
  limit: number | null,
  used: number,
  resetSeconds: number,
): readonly NamedMeasure[] {
  if (limit === null) return []
  return [{ what, used, limit, remaining: Math.max(0, limit - used), resetSeconds }]
}

function tightest(measures: readonly NamedMeasure[]): Measure | null {
  const [first, second] = measures
  if (first === undefined) return null
  const { limit, remaining, resetSeconds } =
    second !== undefined && second.remaining < first.remaining ? second : first
  return { limit, remaining, resetSeconds }
}

function describe({ what, limit, remaining }: NamedMeasure, estimate: number): string {
  const wanted = what.startsWith('tokens') ? `, the request may use ${estimate}` : ''
  return `${limit} ${what}, ${remaining} left${wanted}`
}

/** The answer to `GET /v1/dashboard/rate-limits`. */
export type RateLimitsReport = {
  readonly usage_tier_name: string
  readonly usage_tier_description: string
  /** Always null, because accounts have no credits. */
  readonly credits_balance: null
  readonly usages: readonly GroupUsage[]
}

/** Null means that there is no limit. Days begin at midnight UTC. */
type GroupUsage = {
  /** The group's name. */
  readonly model: string
  /** The models of the group. */
  readonly full_model: string
  readonly price_per_million_tokens: string | null
  readonly max_requests_per_day: number | null
  readonly max_requests_per_minute: number | null
  readonly max_tokens_per_day: number | null
  readonly max_tokens_per_minute: number | null
  readonly requests_left_day: number | null
  readonly requests_used_day: number
  readonly tokens_left_day: number | null
  readonly tokens_used_day: number
}

export function describeUsage(
  tier: Tier,
  { used }: Pick<Awaited<ReturnType<RateLimitsStore['read']>>, 'used'>,
): RateLimitsReport {
  return {
    usage_tier_name: tier.name,
    usage_tier_description: tier.description,
    credits_balance: null,
    usages: tier.groups.map(({ name, models, limits, pricePerMillionTokens }) => {
      const { dayRequests = 0, dayTokens = 0 } = used.get(name) ?? {}
      return {
        model: name,
        full_model: models.join(', '),
        price_per_million_tokens: pricePerMillionTokens,
        max_requests_per_day: limits.requestsPerDay,
        max_requests_per_minute: limits.requestsPerMinute,
        max_tokens_per_day: limits.tokensPerDay,
        max_tokens_per_minute: limits.tokensPerMinute,
        requests_left_day: left(limits.requestsPerDay, dayRequests),
        requests_used_day: dayRequests,
        tokens_left_day: left(limits.tokensPerDay, dayTokens),
        tokens_used_day: dayTokens,
      }
    }),
  }
}

function left(limit: number | null, used: number): number | null {
  return limit === null ? null : Math.max(0, limit - used)
}
