import type { Router } from '@koa/router'
import { callerOf } from '../api/authenticate.ts'
import { type ApiMiddleware, type RequestState, sendJson } from '../api/context.ts'
import type { RateLimiter } from './limits/limiter.ts'

/** `GET /v1/dashboard/rate-limits`: what the limiter has counted for the caller's account, and what it allows. */
export function addRateLimitRoutes(
  router: Router<RequestState>,
  {
    limiter,
    authenticated,
  }: { readonly limiter: Pick<RateLimiter, 'report'>; readonly authenticated: ApiMiddleware },
): void {
  router.get('/v1/dashboard/rate-limits', authenticated, async (context) => {
    sendJson(context, JSON.stringify(await limiter.report(callerOf(context.state))))
  })
}
