import type { Router } from '@koa/router'
import { type RequestState, type RouteHandler, sendJson } from '../api/context.ts'
import { parseAttestationQuery } from './attestation-query.ts'
import type { Attestations } from './attestations.ts'

/** What the service says of itself (interface, 2.8). */
export const API_INFORMATION = {
  title: 'Affidavit',
  description:
    'Inference gateway whose answers come with sworn evidence: hash, signature, attestation document and transaction.',
} as const

/** Routes that need no key: `GET /`, `GET /v1/attestation` and `GET /v1/notaries`. */
export function addServiceRoutes(router: Router<RequestState>, attestations: Attestations): void {
  const information = JSON.stringify(API_INFORMATION)

  const root: RouteHandler = async (context) => sendJson(context, information)

  const attestation: RouteHandler = async (context) => {
    const { nonce, notary } = parseAttestationQuery(context.query)
    sendJson(context, JSON.stringify(await attestations.attest(nonce, notary)))
  }

  const notaries: RouteHandler = async (context) =>
    sendJson(context, JSON.stringify({ notaries: attestations.list() }))

  router.get('/', root)
  router.get('/v1/attestation', attestation)
  router.get('/v1/notaries', notaries)
}
