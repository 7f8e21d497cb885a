import type { Router } from '@koa/router'
import { type RequestState, type RouteHandler, sendJson } from '../http/context.ts'
import { parseNonceParameter } from '../schemas/history-query.ts'
import type { Attestations } from '../services/attestations.ts'

/** What the service says of itself (interface, 2.8). */
export const API_INFORMATION = {
  title: 'Affidavit',
  description:
    'Inference gateway whose answers come with sworn evidence: hash, signature, attestation document and transaction.',
} as const

/** Routes that need no key: `GET /` and `GET /v1/attestation`. */
export function addServiceRoutes(router: Router<RequestState>, attestations: Attestations): void {
  const information = JSON.stringify(API_INFORMATION)

  const root: RouteHandler = async (context) => sendJson(context, information)

  const attestation: RouteHandler = async (context) => {
    const nonce = parseNonceParameter(context.query)
    sendJson(context, JSON.stringify(await attestations.attest(nonce)))
  }

  router.get('/', root)
  router.get('/v1/attestation', attestation)
}
