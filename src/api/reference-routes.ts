import type { Router } from '@koa/router'
import { API_INFORMATION } from '../enclaves/attestation-routes.ts'
import { type RequestState, type RouteHandler, sendJson } from './context.ts'
import { createDocument } from './openapi/document.ts'
import { OPERATIONS } from './openapi/operations.ts'
import { type ReferencePage, renderPage } from './openapi/page.ts'

/** Routes of the documentation, which need no key: `GET /openapi.json`, and `GET /docs` for people. */
export function addReferenceRoutes(router: Router<RequestState>): void {
  // Made when it is first asked for: most processes never are.
  let made: { readonly text: string; readonly page: ReferencePage } | null = null
  const make = () => {
    const document = createDocument(OPERATIONS, API_INFORMATION)
    return { text: JSON.stringify(document), page: renderPage(document) }
  }

  const document: RouteHandler = async (context) => {
    made ??= make()
    sendJson(context, made.text)
  }

  const page: RouteHandler = async (context) => {
    made ??= make()
    context.status = 200
    context.set('content-type', 'text/html; charset=utf-8')
    context.set('content-security-policy', made.page.contentSecurityPolicy)
    context.body = made.page.html
  }

  router.get('/openapi.json', document)
  router.get('/docs', page)
}
