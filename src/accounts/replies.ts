import { z } from 'zod'
import { SCOPES } from '../api/scopes.ts'
import { unixSeconds } from '../verified/record-replies.ts'

/** A key as it is shown: never the secret. */
export const managedKey = z.strictObject({
  id: z.string(),
  account_id: z.uuid(),
  account_name: z.string(),
  name: z.string(),
  scopes: z.array(z.enum(SCOPES)),
  created_at: unixSeconds,
  expires_at: unixSeconds.nullable(),
  revoked_at: unixSeconds.nullable(),
  last_used_at: unixSeconds.nullable().describe('To the minute'),
})

export const keyList = z.strictObject({ keys: z.array(managedKey) })

export const newKey = managedKey.extend({ key: z.string().describe('The secret, shown this once') })

const limit = z.number().min(0).nullable().describe('Null: no limit')

/** `GET /v1/dashboard/rate-limits`. */
export const rateLimits = z.strictObject({
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
