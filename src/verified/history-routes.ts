import type { Router } from '@koa/router'
import { viewerOf } from '../api/authenticate.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import type { History } from './history.ts'
import { parseHashParameter, parseHistoryQuery } from './history-query.ts'

/** Routes of the stored completions: the list, and one by its hash. */
export function addHistoryRoutes(
  router: Router<RequestState>,
  { history, authenticated }: { readonly history: History; readonly authenticated: ApiMiddleware },
): void {
  const list: RouteHandler = async (context) => {
    const viewer = viewerOf(context.state)
    sendJson(context, await history.list({ viewer, ...parseHistoryQuery(context.query) }))
  }

  const find: RouteHandler = async (context) => {
    const text = await history.find(parseHashParameter(context.params.hash ?? ''), viewerOf(context.state))
    if (text === null) throw new ApiError('not_found', 'There is no completion with this hash')
    sendJson(context, text)
  }

  router.get('/v1/verified/chat/completions', authenticated, list)
  router.get('/v1/verified/chat/completions/:hash', authenticated, find)
}
