import { callerOf } from '../api/authenticate.ts'
import type { ApiContext } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import { type InferenceFacts, noteInference } from '../observability/call-scope.ts'
import type { Decision, LimitedCall, Permit, RateLimiter } from './limits/limiter.ts'
import { type Quota, quotaHeaders } from './limits/quota.ts'
import type { CallKind } from './limits/tiers.ts'

/** What a route says of a call; who calls is known from the key. */
type CallToLimit = Pick<LimitedCall, 'kind' | 'model' | 'estimate'>

/**
 * Counts the caller's call and tells what is left in the `x-ratelimit-*` headers; settle the permit
 * in a `finally`. Throws ApiError `rate_limit_exceeded`, and `not_ready` when it cannot be told.
 * Behind `authenticate`.
 */
export async function admitCall(
  context: ApiContext,
  limiter: Pick<RateLimiter, 'admit'>,
  call: CallToLimit,
): Promise<Permit> {
  noteInference(() => ({
    operation: OPERATIONS[call.kind],
    ...(call.model === '' ? {} : { model: call.model }),
  }))
  const { accountId, tier } = callerOf(context.state)
  const decision = await decide(limiter, { ...call, accountId, tier })
  if (decision.kind === 'admitted') {
    tell(context, decision.permit.quota)
    return decision.permit
  }
  const { message, quota, retryAfterSeconds, isHopeless } = decision.refusal
  tell(context, quota)
  throw new ApiError('rate_limit_exceeded', message, {
    retryAfterSeconds,
    ...(isHopeless ? { shouldRetry: false } : {}),
  })
}

const OPERATIONS: Readonly<Record<CallKind, InferenceFacts['operation'] & string>> = {
  chat: 'chat',
  verified: 'chat',
  embeddings: 'embeddings',
  images: 'images',
  search: 'search',
}

function tell(context: ApiContext, quota: Quota | null): void {
  if (quota !== null) context.set(quotaHeaders(quota))
}

async function decide(limiter: Pick<RateLimiter, 'admit'>, call: LimitedCall): Promise<Decision> {
  try {
    return await limiter.admit(call)
  } catch (cause) {
    throw new ApiError('not_ready', 'Limits cannot be checked at the moment, try again', { cause })
  }
}
