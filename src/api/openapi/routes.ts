import { z } from 'zod'
import { defineRoute, type Route } from '../route.ts'
import { createDocument } from './document.ts'
import { type ReferencePage, renderPage } from './page.ts'

/** What the service says of itself (interface, 2.8). */
const API_INFORMATION = {
  title: 'Affidavit',
  description:
    'Inference gateway whose answers come with sworn evidence: hash, signature, attestation document and transaction.',
} as const

/** `GET /`: what this is. */
export const rootRoute: Route = defineRoute({
  method: 'GET',
  path: '/',
  tag: 'Service',
  summary: 'What this is',
  scope: 'public',
  reply: {
    name: 'ApiInformation',
    schema: z.strictObject({ title: z.string(), description: z.string() }),
  },
  handler: async () => API_INFORMATION,
})

/**
 * The documentation of `routes`, which need no key, and are in no documentation themselves: `GET
 * /openapi.json`, and `GET /docs` for people.
 */
export function referenceRoutes(routes: readonly Route[]): readonly Route[] {
  // Made when it is first asked for: most processes never are.
  let made: { readonly text: string; readonly page: ReferencePage } | null = null
  const make = () => {
    const document = createDocument(routes, API_INFORMATION)
    return { text: JSON.stringify(document), page: renderPage(document) }
  }

  return [
    defineRoute({
      method: 'GET',
      path: '/openapi.json',
      tag: 'Reference',
      summary: 'The interface as an OpenAPI document',
      scope: 'public',
      reply: { name: 'Document', schema: z.looseObject({}) },
      handler: async () => {
        made ??= make()
        return made.text
      },
    }),
    defineRoute({
      method: 'GET',
      path: '/docs',
      tag: 'Reference',
      summary: 'The interface as a page',
      scope: 'public',
      reply: { name: 'Page', schema: z.string(), types: ['text/html'] },
      handler: async ({ context }) => {
        made ??= make()
        context.status = 200
        context.set('content-type', 'text/html; charset=utf-8')
        context.set('content-security-policy', made.page.contentSecurityPolicy)
        context.body = made.page.html
      },
    }),
  ]
}
