import { z } from 'zod'
import type { JsonObject } from '#attestation/json/value.ts'
import { MODEL_LENGTH_MAX } from '#enclave/protocol/chat-form.ts'
import { admitCall, type RateLimiter } from '../accounts/limits/limiter.ts'
import { createAdmission } from '../api/admission.ts'
import { ApiError } from '../api/errors.ts'
import { ANTHROPIC_FACE } from '../api/faces.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { boundedText } from '../api/schemas.ts'
import { pathOfDialect } from '../nodes/protocol/dialects.ts'
import type { Dispatcher } from '../nodes/runs/dispatch.ts'
import { estimateDialectTokens } from './chat-tokens.ts'

/** The body of a request to count tokens, of plain and of verified Messages. */
export const COUNT_BODY = {
  name: 'CountTokensRequest',
  schema: z.looseObject({ model: boundedText({ min: 1, max: MODEL_LENGTH_MAX }) }),
  example: { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] },
} as const

export const COUNT_REPLY = {
  name: 'TokenCount',
  schema: z.looseObject({ input_tokens: z.int().min(0) }),
} as const

/**
 * Limits of all running counts: their number, and the bytes of their bodies. A coding agent asks
 * for about 24 counts at once.
 */
export const COUNT_LIMITS = { callsMax: 256, bytesMax: 256 * 1024 * 1024 } as const

/** Few backends of nodes count, so the gateway estimates, as it does for the limits. */
export function countTokensRoute({
  dispatcher,
  limiter,
  bodyBytesMax,
}: {
  readonly dispatcher: Pick<Dispatcher, 'models'>
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly bodyBytesMax: number
}): Route {
  return defineRoute({
    method: 'POST',
    path: `${pathOfDialect('messages')}/count_tokens`,
    face: ANTHROPIC_FACE,
    tag: 'Chat',
    summary: 'Estimate the tokens of a Messages request',
    description:
      'The gateway estimates from the length of the texts, and asks no node. The call counts as ' +
      'one request without tokens.',
    scope: 'inference',
    body: { ...COUNT_BODY, bytesMax: bodyBytesMax },
    reply: COUNT_REPLY,
    errors: ['rate_limit_exceeded', 'insufficient_quota', 'not_found'],
    admission: createAdmission(COUNT_LIMITS),
    async handler({ context, body }) {
      const { model } = body
      const permit = await admitCall(context, limiter, { kind: 'chat', model, estimate: 0 })
      permit.settle(0)
      if (!dispatcher.models().some((served) => served.model === model))
        throw new ApiError('not_found', 'No node serves this model')
      return { input_tokens: estimateDialectTokens('messages', body as JsonObject).promptTokens }
    },
  })
}
