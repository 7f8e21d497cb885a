import type { Router } from '@koa/router'
import { admitCall } from '../accounts/limit-calls.ts'
import type { RateLimiter } from '../accounts/limits/limiter.ts'
import type { Admission } from '../api/admission.ts'
import type { CallSignals } from '../api/call-signals.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../api/context.ts'
import { readJsonBody } from '../api/read-body.ts'
import { parseSearchRequest } from './search-request.ts'
import type { WebSearch } from './web-search.ts'

/** A query and a number. */
export const SEARCH_BODY_BYTES_MAX = 64 * 1024

export type SearchRouteOptions = {
  readonly search: WebSearch
  readonly authenticated: ApiMiddleware
  readonly admission: Admission
  readonly signals: CallSignals
  readonly limiter: Pick<RateLimiter, 'admit'>
}

/** `POST /v1/tool/search` (interface, part 4, and facts). */
export function addSearchRoutes(router: Router<RequestState>, options: SearchRouteOptions): void {
  const { search, authenticated, admission, signals, limiter } = options

  const find: RouteHandler = async (context) => {
    const slot = admission.admit()
    const { abort, done } = signals.open(context.res)
    try {
      const limits = { slot, bytesMax: SEARCH_BODY_BYTES_MAX }
      const query = parseSearchRequest(await readJsonBody(context.req, context.res, limits))
      const permit = await admitCall(context, limiter, { kind: 'search', model: '', estimate: 0 })
      permit.settle(0)
      sendJson(context, await search.search({ ...query, signal: abort.signal, reserve: slot.reserve }))
    } finally {
      done()
      slot.release()
    }
  }

  router.post('/v1/tool/search', authenticated, find)
}
