import { z } from 'zod'
import { admitCall, type RateLimiter } from '../accounts/limits/limiter.ts'
import { createAdmission } from '../api/admission.ts'
import { UPSTREAM_ERRORS } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { embeddingRequest, embeddingRequestOf } from './embedding-request.ts'
import type { Embeddings } from './embeddings.ts'

/** Limits: simultaneous calls, and the bytes of all their bodies and answers. */
const EMBEDDING_CALLS_MAX = 256
const EMBEDDING_BYTES_MAX = 512 * 1024 * 1024

const embeddingList = z.looseObject({
  object: z.literal('list'),
  data: z.array(
    z.looseObject({
      object: z.literal('embedding'),
      index: z.int().min(0),
      embedding: z
        .union([z.array(z.number()), z.base64()])
        .describe('Numbers, or with encoding_format base64 their little-endian float32'),
    }),
  ),
  model: z.string(),
  usage: z.looseObject({ prompt_tokens: z.int(), total_tokens: z.int() }),
})

/** `POST /v1/embeddings` (interface, 2.6). */
export function embeddingRoutes({
  embeddings,
  limiter,
  bodyBytesMax,
}: {
  readonly embeddings: Embeddings
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly bodyBytesMax: number
}): readonly Route[] {
  return [
    defineRoute({
      method: 'POST',
      path: '/v1/embeddings',
      tag: 'Embeddings',
      summary: 'Vectors of texts',
      scope: 'inference',
      body: {
        name: 'EmbeddingRequest',
        schema: embeddingRequest,
        bytesMax: bodyBytesMax,
        example: { model: 'demo/embedding', input: 'Hello' },
      },
      reply: { name: 'EmbeddingList', schema: embeddingList },
      errors: [
        'rate_limit_exceeded',
        'insufficient_quota',
        'unsupported_model',
        ...UPSTREAM_ERRORS,
      ],
      admission: createAdmission({ callsMax: EMBEDDING_CALLS_MAX, bytesMax: EMBEDDING_BYTES_MAX }),
      isAbortable: true,
      async handler({ context, body, json, abort, slot }) {
        const request = embeddingRequestOf(body, json)
        const call = { request, signal: abort.signal, reserve: slot.reserve }
        const counted = await embeddings.count(call)
        const limited = {
          kind: 'embeddings',
          model: request.model,
          estimate: counted.total,
          promptTokens: counted.total,
        } as const
        const permit = await admitCall(context, limiter, limited)
        try {
          const { text, usedTokens } = await embeddings.create(call, counted)
          permit.settle(usedTokens, undefined, usedTokens)
          return text
        } finally {
          // A failed call is settled without usage. After a successful call, this has no effect,
          // because the call is settled already.
          permit.settle(0, undefined, 0)
        }
      },
    }),
  ]
}
