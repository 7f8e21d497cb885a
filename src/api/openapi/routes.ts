import { z } from 'zod'
import type { RouteContext } from '../context.ts'
import { defineRoute, type Route } from '../route.ts'
import { createDocument } from './document.ts'

/** Interface, 2.8. */
const API_INFORMATION = {
  title: 'Affidavit',
  description:
    'Inference gateway whose answers come with signed evidence: hash, signature, attestation document and transaction.',
} as const

/** Users must not mistake a gateway with a simulated security module for a real gateway. */
const STAGING_NOTICE =
  'Staging: the security module is simulated, so the signatures of this service are not evidence.'

const hello = z.strictObject({ message: z.literal('hello') })

/** `showHome` answers a client that prefers HTML, as browsers do. */
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

/** Coding agents first send `HEAD /api/hello` below their base URL, without a key. */
export const helloRoutes: readonly Route[] = ['/api/hello', '/v1/verified/anthropic/api/hello'].map(
  (path) =>
    defineRoute({
      method: 'GET',
      path,
      tag: 'Service',
      summary: 'Whether this service can be reached, for coding agents',
      scope: 'public',
      isRoutine: true,
      reply: { name: 'Hello', schema: hello },
      handler: async () => ({ message: 'hello' }),
    }),
)

/** `routes`: all other routes. */
export function documentRoute(routes: readonly Route[]): Route {
  // Made on demand, because most processes never need the document.
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
