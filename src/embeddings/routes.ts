import type { Router } from '@koa/router'
import { admitCall } from '../accounts/limit-calls.ts'
import type { RateLimiter } from '../accounts/limits/limiter.ts'
import type { Admission } from '../api/admission.ts'
import type { CallSignals } from '../api/call-signals.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../api/context.ts'
import { readJsonBody } from '../api/read-body.ts'
import { parseEmbeddingRequest } from './embedding-request.ts'
import type { Embeddings } from './embeddings.ts'

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
