import type { Router } from '@koa/router'
import { type RequestState, type RouteContext, type RouteHandler, sendJson } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import { credentialHeaderOf } from '../verified/completion-routes.ts'
import { parseProviderCredential } from '../verified/provider-credential.ts'
import type { Models } from './models.ts'

/**
 * `GET /v1/models`: what can be asked for, and `…/{model}`, as OpenAI's clients ask for one; `GET
 * /v1/verified/models`: what can be verified, with the same below it. An id may have slashes, as
 * they are or in percents. None needs a key (interface, part 4).
 */
export function addModelRoutes(router: Router<RequestState>, models: Models): void {
  const list: RouteHandler = async (context) => sendJson(context, await models.list())
  const find: RouteHandler = async (context) => answer(context, await models.find(idOf(context)))

  const listVerified: RouteHandler = async (context) =>
    sendJson(context, await models.listVerified(callerCredentialOf(context)))
  const findVerified: RouteHandler = async (context) =>
    answer(context, await models.findVerified(idOf(context), callerCredentialOf(context)))

  router.get('/v1/models', list)
  router.get('/v1/models/*model', find)
  router.get('/v1/verified/models', listVerified)
  router.get('/v1/verified/models/*model', findVerified)
}

function answer(context: RouteContext, model: string | null): void {
  if (model === null) throw new ApiError('not_found', 'There is no such model')
  sendJson(context, model)
}

function idOf({ params }: RouteContext): string {
  return params.model ?? ''
}

function callerCredentialOf(context: RouteContext): string | null {
  return parseProviderCredential(credentialHeaderOf(context))
}
