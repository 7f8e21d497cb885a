import type { Router } from '@koa/router'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../api/context.ts'
import type { NetworkStats } from './network-stats.ts'

/** `GET /v1/network/stats`: what all contributed nodes do together. */
export function addNetworkRoutes(
  router: Router<RequestState>,
  { network, authenticated }: { readonly network: NetworkStats; readonly authenticated: ApiMiddleware },
): void {
  const stats: RouteHandler = async (context) => sendJson(context, JSON.stringify(await network.read()))

  router.get('/v1/network/stats', authenticated, stats)
}
