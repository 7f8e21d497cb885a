import type { Router } from '@koa/router'
import { viewerOf } from '../api/authenticate.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import type { Evidence } from './evidence.ts'
import { parseHashParameter } from './history-query.ts'

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
