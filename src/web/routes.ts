import { z } from 'zod'
import { type Maker, makePage, writeMadeBy } from '#attestation/report/evidence-page.ts'
import type { ApiContext, RouteContext } from '../api/context.ts'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import { ASSETS_PATH, bundlePages, type PageBundle, type PageName } from './bundle.ts'
import {
  CHECKER_ALLOWANCES,
  type PageHeaders,
  pageHeaders,
  renderShell,
  renderVerifier,
  SAFE_HEADERS,
  VERIFY_ALLOWANCES,
} from './page.ts'
import { readMaker } from './verifier.ts'

const PAGE_PATHS: readonly (ShownPage & { readonly path: string })[] = [
  { path: '/verify', page: 'verify', title: 'Verify', headers: pageHeaders(VERIFY_ALLOWANCES) },
  { path: '/docs', page: 'docs', title: 'API' },
  { path: '/docs/:group', page: 'docs', title: 'API' },
  { path: '/console', page: 'console', title: 'Console' },
  { path: '/console/:part', page: 'console', title: 'Console' },
  { path: '/log', page: 'log', title: 'Logs' },
  { path: '/log/:notary', page: 'log', title: 'Log' },
  {
    path: '/c/:hash',
    page: 'completion',
    title: 'Completion',
    headers: pageHeaders(CHECKER_ALLOWANCES),
  },
]

type ShownPage = {
  readonly page: PageName
  readonly title: string
  /** Default pageHeaders(). */
  readonly headers?: PageHeaders
  /** Default 200. */
  readonly status?: number
}
/** Facts about the maker of the verifier. A saved page states these facts too. */
const VERIFIER_SCHEMA = z.object({
  version: z.string(),
  commit: z.string().nullable().describe('Null: not known, or the sources differ from it'),
  verifier_sha256: z
    .string()
    .describe('Of a saved page without its lines of data (docs/checking.md), hex'),
})

export type Pages = {
  readonly routes: readonly Route[]
  readonly showHome: (context: RouteContext) => Promise<undefined>
  /** For an unknown path: a page with status 404. */
  readonly showMissing: (context: ApiContext) => Promise<undefined>
}

/**
 * The pages are bundled when a browser first requests one, because most processes never get such a
 * request.
 */
export function createPages({
  bundle = bundlePages,
  maker = readMaker,
  isDevelopment = false,
}: {
  readonly bundle?: () => Promise<PageBundle>
  readonly maker?: () => Promise<Maker>
  /** True if pages use this gateway's statements about itself (src/local/development-routes.ts). */
  readonly isDevelopment?: boolean
} = {}): Pages {
  let bundling: Promise<PageBundle> | null = null
  const open = (): Promise<PageBundle> => {
    bundling ??= bundle().catch((fault: unknown) => {
      // The bundling failed. The next request tries again.
      bundling = null
      throw fault
    })
    return bundling
  }

  async function show(
    context: ApiContext,
    { page, title, headers, status = 200 }: ShownPage,
  ): Promise<undefined> {
    const assets = (await open()).pages.get(page)
    if (assets === undefined) throw new TypeError(`expected ${page} to be bundled`)
    context.status = status
    context.set({ 'content-type': 'text/html; charset=utf-8', ...(headers ?? pageHeaders()) })
    context.body = renderShell(title, assets, { isDevelopment })
  }

  const html = { name: 'Page', schema: z.string(), types: ['text/html'] }
  const given = { method: 'GET', tag: 'Pages', scope: 'public' } as const
  return {
    showHome: (context) => show(context, { page: 'home', title: 'Home' }),
    showMissing: (context) => show(context, { page: 'missing', title: 'Not found', status: 404 }),
    routes: [
      ...PAGE_PATHS.map(({ path, ...shown }) =>
        defineRoute({
          ...given,
          path,
          summary: `${shown.title}, in a browser`,
          reply: html,
          handler: ({ context }) => show(context, shown),
        }),
      ),
      defineRoute({
        ...given,
        path: '/verify/copy',
        summary: 'The page that checks evidence, as one file to save',
        reply: html,
        handler: async ({ context }) => {
          context.status = 200
          context.set({
            'content-type': 'text/html; charset=utf-8',
            'content-disposition': 'attachment; filename="affidavit-verify.html"',
            'cache-control': 'no-cache',
            ...SAFE_HEADERS,
          })
          const verifier = renderVerifier((await open()).saved)
          context.body = makePage(verifier, writeMadeBy(verifier, await maker()))
          return undefined
        },
      }),
      defineRoute({
        ...given,
        path: '/verify/digest',
        summary: 'Version, commit and digest of the page that /verify/copy gives',
        reply: { name: 'Verifier', schema: VERIFIER_SCHEMA },
        handler: async () => writeMadeBy(renderVerifier((await open()).saved), await maker()),
      }),
      defineRoute({
        ...given,
        path: `${ASSETS_PATH}/:name`,
        summary: 'A script or style of the pages',
        params: z.object({ name: z.string() }),
        reply: { name: 'Asset', schema: z.string(), types: ['text/javascript', 'text/css'] },
        errors: ['not_found'],
        handler: async ({ context, params }) => {
          const asset = (await open()).assets.get(params.name)
          if (asset === undefined)
            throw new ApiError('not_found', 'The page has no such part; load the page again')
          context.status = 200
          context.set({
            'content-type': asset.type,
            'cache-control': 'public, max-age=31536000, immutable',
            ...SAFE_HEADERS,
          })
          context.body = asset.text
          return undefined
        },
      }),
    ],
  }
}
