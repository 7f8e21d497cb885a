import type { Router } from '@koa/router'
import type { Admission } from '../api/admission.ts'
import { callerOf } from '../api/authenticate.ts'
import { type ApiMiddleware, type RequestState, type RouteHandler, sendJson } from '../api/context.ts'
import { readJsonBody } from '../api/read-body.ts'
import { parseCreateKey, parseKeysQuery } from './key-request.ts'
import type { ManagedKeys } from './managed-keys.ts'

/** A name, some scopes and a time. */
export const KEY_BODY_BYTES_MAX = 16 * 1024

/** Routes of API keys, for a dashboard: list, make, revoke. */
export function addKeyRoutes(
  router: Router<RequestState>,
  options: {
    readonly keys: ManagedKeys
    readonly authenticated: ApiMiddleware
    /** For the calls that have a body. */
    readonly admission: Admission
  },
): void {
  const { keys, authenticated, admission } = options

  const list: RouteHandler = async (context) => {
    const page = await keys.list(callerOf(context.state), parseKeysQuery(context.query))
    sendJson(context, JSON.stringify(page))
  }

  const create: RouteHandler = async (context) => {
    const slot = admission.admit()
    try {
      const body = await readJsonBody(context.req, context.res, { slot, bytesMax: KEY_BODY_BYTES_MAX })
      const made = await keys.create(callerOf(context.state), parseCreateKey(body))
      sendJson(context, JSON.stringify(made))
    } finally {
      slot.release()
    }
  }

  const revoke: RouteHandler = async (context) => {
    sendJson(context, JSON.stringify(await keys.revoke(callerOf(context.state), context.params.id ?? '')))
  }

  router.get('/v1/dashboard/keys', authenticated, list)
  router.post('/v1/dashboard/keys', authenticated, create)
  router.delete('/v1/dashboard/keys/:id', authenticated, revoke)
}
