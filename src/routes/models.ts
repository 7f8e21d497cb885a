import type { Router } from '@koa/router'
import { type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import type { Models } from '../services/models.ts'

/** `GET /v1/models`: what can be asked for. Needs no key (interface, part 4). */
export function addModelRoutes(router: Router<RequestState>, models: Models): void {
  const list: RouteHandler = async (context) => sendJson(context, await models.list())

  router.get('/v1/models', list)
}
