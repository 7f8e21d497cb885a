import type { Router } from '@koa/router'
import { createAdmission } from '../api/admission.ts'
import { viewerOf } from '../api/authenticate.ts'
import {
  type ApiMiddleware,
  type RequestState,
  type RouteContext,
  type RouteHandler,
  sendJson,
} from '../api/context.ts'
import type { QueryParameters } from '../api/parameters.ts'
import {
  parseConsistencyQuery,
  parseHeadsQuery,
  parseInclusionQuery,
  parseLeavesQuery,
  parseLogRecordsQuery,
  parseLogsQuery,
  parseNotaryParameter,
} from './log-query.ts'
import type { Logs } from './logs.ts'

/** Public reads of logs at once; beyond that they are refused with 503. Keys and the history use the same database. */
export const LOG_READS_MAX = 32

/** Routes of the notaries' logs: public, but for their records. */
export function addLogRoutes(
  router: Router<RequestState>,
  { logs, authenticated }: { readonly logs: Logs; readonly authenticated: ApiMiddleware },
): void {
  const records: RouteHandler = async (context) => {
    const viewer = viewerOf(context.state)
    const query = parseLogRecordsQuery(context.query)
    sendJson(context, await logs.records(notaryOf(context), { ...query, viewer }))
  }

  const admission = createAdmission({ callsMax: LOG_READS_MAX, bytesMax: 0 })

  /** Answers what anyone may read. */
  const open =
    (answer: (context: RouteContext) => Promise<object>): RouteHandler =>
    async (context) => {
      const slot = admission.admit()
      try {
        sendJson(context, JSON.stringify(await answer(context)))
      } finally {
        slot.release()
      }
    }

  /** The same for a part of one log. */
  const openPart = <Query>(
    parse: (parameters: QueryParameters) => Query,
    answer: (notary: string, query: Query) => Promise<object>,
  ) => open((context) => answer(notaryOf(context), parse(context.query)))

  router.get(
    '/v1/log',
    open((context) => logs.list(parseLogsQuery(context.query))),
  )
  router.get(
    '/v1/log/:notary',
    open((context) => logs.find(notaryOf(context))),
  )
  router.get(
    '/v1/log/:notary/boot-statement',
    open((context) => logs.bootStatement(notaryOf(context))),
  )
  router.get('/v1/log/:notary/heads', openPart(parseHeadsQuery, logs.heads))
  router.get('/v1/log/:notary/inclusion', openPart(parseInclusionQuery, logs.inclusion))
  router.get('/v1/log/:notary/consistency', openPart(parseConsistencyQuery, logs.consistency))
  router.get('/v1/log/:notary/leaves', openPart(parseLeavesQuery, logs.leaves))
  router.get('/v1/log/:notary/records', authenticated, records)
}

function notaryOf(context: RouteContext): string {
  return parseNotaryParameter(context.params.notary ?? '')
}
