import { z } from 'zod'
import type { RouteContext } from '../context.ts'
import { defineRoute, type Route } from '../route.ts'
import { createDocument } from './document.ts'

/** How the service describes itself (interface, 2.8). */
const API_INFORMATION = {
  title: 'Affidavit',
  description:
    'Inference gateway whose answers come with signed evidence: hash, signature, attestation document and transaction.',
} as const

/**
 * Shown by a production gateway with a simulated security module, which must not be taken for a
 * real one.
 */
const STAGING_NOTICE =
  'Staging: the security module is simulated, so the signatures of this service are not evidence.'

/**
 * `GET /`: describes the service as JSON. A client that asks for HTML first, as browsers do, is
 * answered by `showHome`.
 */
export function rootRoute(
  showHome: (context: RouteContext) => Promise<undefined>,
  { isStaging }: { readonly isStaging: boolean },
): Route {
  const information = { ...API_INFORMATION, ...(isStaging ? { staging: STAGING_NOTICE } : {}) }
  return defineRoute({
    method: 'GET',
    path: '/',
    tag: 'Service',
    summary: 'What this service is',
    scope: 'public',
    reply: {
      name: 'ApiInformation',
      schema: z.strictObject({
        title: z.string(),
        description: z.string(),
        staging: z.string().optional(),
      }),
    },
    async handler({ context }) {
      context.vary('accept')
      return context.accepts('json', 'html') === 'html' ? showHome(context) : information
    },
  })
}

/**
 * `GET /openapi.json`: the documentation of `routes`. It needs no key, and is not in the
 * documentation itself.
 */
export function documentRoute(routes: readonly Route[]): Route {
  // Made at the first request: most processes are never asked.
  let text: string | null = null
  return defineRoute({
    method: 'GET',
    path: '/openapi.json',
    tag: 'Reference',
    summary: 'The interface as an OpenAPI document',
    scope: 'public',
    reply: { name: 'Document', schema: z.looseObject({}) },
    handler: async () => {
      text ??= JSON.stringify(createDocument(routes, API_INFORMATION))
      return text
    },
  })
}
