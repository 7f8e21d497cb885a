import type { Router } from '@koa/router'
import { ApiError } from '../errors.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import { callerOf } from '../middleware/authenticate.ts'
import { parseHashParameter, parseHistoryQuery } from '../schemas/history-query.ts'
import type { History } from '../services/history.ts'

/** Routes of the stored completions: the list, and one by its hash. */
export function addHistoryRoutes(
  router: Router<RequestState>,
  { history, authenticated }: { readonly history: History; readonly authenticated: ApiMiddleware },
): void {
  const list: RouteHandler = async (context) => {
    const { accountId } = callerOf(context.state)
    sendJson(context, await history.list({ accountId, ...parseHistoryQuery(context.query) }))
  }

  const find: RouteHandler = async (context) => {
    const { accountId } = callerOf(context.state)
    const text = await history.find(parseHashParameter(context.params.hash ?? ''), accountId)
    if (text === null) throw new ApiError('not_found', 'There is no completion with this hash')
    sendJson(context, text)
  }

  router.get('/v1/verified/chat/completions', authenticated, list)
  router.get('/v1/verified/chat/completions/:hash', authenticated, find)
}
