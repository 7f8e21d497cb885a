import type { Router } from '@koa/router'
import type { Admission } from '../http/admission.ts'
import type { CallSignals } from '../http/call-signals.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import { readJsonBody } from '../http/read-body.ts'
import type { RateLimiter } from '../limits/limiter.ts'
import { admitCall } from '../middleware/limit-calls.ts'
import { parseEmbeddingRequest } from '../schemas/embedding-request.ts'
import type { Embeddings } from '../services/embeddings.ts'

export type EmbeddingRouteOptions = {
  readonly embeddings: Embeddings
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly limiter: Pick<RateLimiter, 'admit'>
  readonly bodyBytesMax: number
}

/** `POST /v1/embeddings` (interface, 2.6). */
export function addEmbeddingRoutes(router: Router<RequestState>, options: EmbeddingRouteOptions): void {
  const { embeddings, authenticated, admission, signals, limiter, bodyBytesMax: bytesMax } = options

  const create: RouteHandler = async (context) => {
    const slot = admission.admit()
    const { abort, done } = signals.open(context.res)
    try {
      const request = parseEmbeddingRequest(await readJsonBody(context.req, context.res, { slot, bytesMax }))
      const call = { request, signal: abort.signal, reserve: slot.reserve }
      const counted = await embeddings.count(call)
      const limited = { kind: 'embeddings', model: request.model, estimate: counted.total } as const
      const permit = await admitCall(context, limiter, limited)
      try {
        const { text, usedTokens } = await embeddings.create(call, counted)
        permit.settle(usedTokens)
        sendJson(context, text)
      } finally {
        // A call that failed used nothing; of one that did not, this is the second settlement, which does not count.
        permit.settle(0)
      }
    } finally {
      done()
      slot.release()
    }
  }

  router.post('/v1/embeddings', authenticated, create)
}
