import type { Router } from '@koa/router'
import {
  type ApiMiddleware,
  type RequestState,
  type RouteContext,
  type RouteHandler,
  sendJson,
} from '../http/context.ts'
import { callerOf } from '../middleware/authenticate.ts'
import {
  parseConsistencyQuery,
  parseHeadsQuery,
  parseInclusionQuery,
  parseLeavesQuery,
  parseLogRecordsQuery,
  parseLogsQuery,
  parseNotaryParameter,
} from '../schemas/log-query.ts'
import type { QueryParameters } from '../schemas/parameters.ts'
import type { Logs } from '../services/logs.ts'

/** Routes of the notaries' logs: public, but for their records. */
export function addLogRoutes(
  router: Router<RequestState>,
  { logs, authenticated }: { readonly logs: Logs; readonly authenticated: ApiMiddleware },
): void {
  const records: RouteHandler = async (context) => {
    const { accountId } = callerOf(context.state)
    const query = parseLogRecordsQuery(context.query)
    sendJson(context, await logs.records(notaryOf(context), { ...query, accountId }))
  }

  const list: RouteHandler = async (context) =>
    sendJson(context, JSON.stringify(await logs.list(parseLogsQuery(context.query))))
  const find: RouteHandler = async (context) =>
    sendJson(context, JSON.stringify(await logs.find(notaryOf(context))))

  router.get('/v1/log', list)
  router.get('/v1/log/:notary', find)
  router.get('/v1/log/:notary/heads', answering(parseHeadsQuery, logs.heads))
  router.get('/v1/log/:notary/inclusion', answering(parseInclusionQuery, logs.inclusion))
  router.get('/v1/log/:notary/consistency', answering(parseConsistencyQuery, logs.consistency))
  router.get('/v1/log/:notary/leaves', answering(parseLeavesQuery, logs.leaves))
  router.get('/v1/log/:notary/records', authenticated, records)
}

function answering<Query>(
  parse: (parameters: QueryParameters) => Query,
  answer: (notary: string, query: Query) => Promise<object>,
): RouteHandler {
  return async (context) =>
    sendJson(context, JSON.stringify(await answer(notaryOf(context), parse(context.query))))
}

function notaryOf(context: RouteContext): string {
  return parseNotaryParameter(context.params.notary ?? '')
}
