import type { Router } from '@koa/router'
import type { Admission } from '../http/admission.ts'
import type { CallSignals } from '../http/call-signals.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import { readJsonBody } from '../http/read-body.ts'
import { parseEmbeddingRequest } from '../schemas/embedding-request.ts'
import type { Embeddings } from '../services/embeddings.ts'

export type EmbeddingRouteOptions = {
  readonly embeddings: Embeddings
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly bodyBytesMax: number
}

/** `POST /v1/embeddings` (interface, 2.6). */
export function addEmbeddingRoutes(router: Router<RequestState>, options: EmbeddingRouteOptions): void {
  const { embeddings, authenticated, admission, signals, bodyBytesMax: bytesMax } = options

  const create: RouteHandler = async (context) => {
    const slot = admission.admit()
    const { abort, done } = signals.open(context.res)
    try {
      const request = parseEmbeddingRequest(await readJsonBody(context.req, context.res, { slot, bytesMax }))
      const call = { request, signal: abort.signal, reserve: slot.reserve }
      const { text } = await embeddings.create(call, await embeddings.count(call))
      sendJson(context, text)
    } finally {
      done()
      slot.release()
    }
  }

  router.post('/v1/embeddings', authenticated, create)
}
