import type { Router } from '@koa/router'
import { ApiError } from '../errors.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import { viewerOf } from '../middleware/authenticate.ts'
import { parseHashParameter } from '../schemas/history-query.ts'
import type { Evidence } from '../services/evidence.ts'

/** `GET /v1/verified/chat/completions/{hash}/evidence`: all that a check of one completion needs, in one file. */
export function addEvidenceRoutes(
  router: Router<RequestState>,
  { evidence, authenticated }: { readonly evidence: Evidence; readonly authenticated: ApiMiddleware },
): void {
  const find: RouteHandler = async (context) => {
    const text = await evidence.find(parseHashParameter(context.params.hash ?? ''), viewerOf(context.state))
    if (text === null) throw new ApiError('not_found', 'There is no completion with this hash')
    sendJson(context, text)
  }

  router.get('/v1/verified/chat/completions/:hash/evidence', authenticated, find)
}
