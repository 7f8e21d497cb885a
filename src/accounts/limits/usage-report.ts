import type { RateLimitsStore } from '../rate-limits-store.ts'
import type { Tier } from './tiers.ts'

/** Answer to `GET /v1/dashboard/rate-limits`, in the form of the first service of this interface. */
export type UsageReport = {
  readonly usage_tier_name: string
  readonly usage_tier_description: string
  /** This service keeps no credits. */
  readonly credits_balance: null
  readonly usages: readonly GroupUsage[]
}

/** What was used of one group of models; null is no limit. Days begin at midnight UTC. */
export type GroupUsage = {
  /** The group's name. */
  readonly model: string
  /** The models that it holds. */
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

/** What an account used of each group of its tier. */
export function describeUsage(
  tier: Tier,
  { used }: Pick<Awaited<ReturnType<RateLimitsStore['read']>>, 'used'>,
): UsageReport {
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
