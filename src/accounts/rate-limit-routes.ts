import { z } from 'zod'
import { defineRoute, type Route } from '../api/route.ts'
import type { RateLimiter } from './limits/limiter.ts'

const limit = z.number().min(0).nullable().describe('Null: no limit')

const rateLimits = z.strictObject({
  usage_tier_name: z.string(),
  usage_tier_description: z.string(),
  credits_balance: z.null(),
  usages: z.array(
    z.strictObject({
      model: z.string(),
      full_model: z.string(),
      price_per_million_tokens: z.string().nullable(),
      max_requests_per_day: limit,
      max_requests_per_minute: limit,
      max_tokens_per_day: limit,
      max_tokens_per_minute: limit,
      requests_left_day: limit,
      requests_used_day: z.int().min(0),
      tokens_left_day: limit,
      tokens_used_day: z.int().min(0),
    }),
  ),
})
export type RateLimitsReply = z.output<typeof rateLimits>

/** `GET /v1/dashboard/rate-limits`: the counted use of the caller's account, and its limits. */
export function rateLimitRoutes(limiter: Pick<RateLimiter, 'report'>): readonly Route[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/v1/dashboard/rate-limits',
      tag: 'Account',
      summary: 'Limits, and how much of each was used',
      scope: 'inference',
      reply: { name: 'RateLimits', schema: rateLimits },
      handler: ({ caller }) => limiter.report(caller()),
    }),
  ]
}
