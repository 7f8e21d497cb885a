import type { Router } from '@koa/router'
import { ApiError } from '../errors.ts'
import { type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import type { Models } from '../services/models.ts'

/** `GET /v1/models`: what can be asked for, and `…/{model}`, as OpenAI's clients ask for one. Needs no key (interface, part 4). */
export function addModelRoutes(router: Router<RequestState>, models: Models): void {
  const list: RouteHandler = async (context) => sendJson(context, await models.list())

  const find: RouteHandler = async (context) => {
    const model = await models.find(context.params.model ?? '')
    if (model === null) throw new ApiError('not_found', 'There is no such model')
    sendJson(context, model)
  }

  router.get('/v1/models', list)
  router.get('/v1/models/:model', find)
}
