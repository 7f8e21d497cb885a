import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { bundlePages } from '#src/web/bundle.ts'
import { pageHeaders, renderShell, renderVerifier, VERIFY_ALLOWANCES } from '#src/web/page.ts'

/** The page `/verify` as a gateway serves it, without a gateway. */
export type ServedPages = {
  readonly url: string
  /** The page as one file. */
  readonly saved: string
  close(): Promise<void>
}

/** Serves the page that checks evidence on loopback, with the headers that a gateway gives it. */
export async function serveVerifyPage(): Promise<ServedPages> {
  const { pages, assets, saved } = await bundlePages()
  const parts = pages.get('verify')
  if (parts === undefined) throw new Error('expected the page to be bundled')
  const html = renderShell('Verify', parts)
  const server = createServer((request, response) => {
    const asset = assets.get((request.url ?? '').replace(/^\/assets\//, ''))
    const type = asset?.type ?? 'text/html; charset=utf-8'
    response.writeHead(200, { ...pageHeaders(VERIFY_ALLOWANCES), 'content-type': type })
    response.end(asset?.text ?? html)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    saved: renderVerifier(saved),
    close: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
