import { existsSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chromium, type Page } from 'playwright-core'

/** The shell comes first: the same engine, without the windows that take half of the time. */
const PATHS = [
  '/usr/bin/chromium-headless-shell',
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
  '/usr/bin/google-chrome-stable',
]

/**
 * The Chromium of this machine: CHROME_PATH, or where distributions put it; null when it is not
 * found.
 */
export function findChromium(): string | null {
  return (
    [process.env.CHROME_PATH ?? '', ...PATHS].find((path) => path !== '' && existsSync(path)) ??
    null
  )
}

/**
 * Opens a page that has loaded `script` from a loopback address (a secure context, as WebCrypto
 * demands). Its policy forbids eval, and everything else except that script. Gives the result of
 * `use`.
 */
export function withPage<Result>(
  { executablePath, script }: { readonly executablePath: string; readonly script: string },
  use: (page: Page) => Promise<Result>,
): Promise<Result> {
  return withSite(
    {
      executablePath,
      page: '<!doctype html><script src="/script.js"></script>',
      script: { path: '/script.js', text: script },
      policy: "default-src 'none'; script-src 'self'",
    },
    use,
  )
}

/** Opens an HTML page from a loopback address, with one script, under a content security policy. */
export async function withSite<Result>(
  site: {
    readonly executablePath: string
    readonly page: string
    readonly script: { readonly path: string; readonly text: string }
    readonly policy: string
  },
  use: (page: Page) => Promise<Result>,
): Promise<Result> {
  const { executablePath, script } = site
  const server = createServer((request, response) => {
    const isScript = request.url === script.path
    response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html')
    response.setHeader('content-security-policy', site.policy)
    response.end(isScript ? script.text : site.page)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const browser = await chromium.launch({ executablePath, headless: true, args: ARGUMENTS })
  try {
    const page = await browser.newPage()
    const faults: string[] = []
    page.on('pageerror', (fault) => faults.push(fault.message))
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
    if (faults.length > 0) throw new Error(`the page failed: ${faults.join('; ')}`)
    return await use(page)
  } finally {
    await browser.close()
    server.closeAllConnections()
    server.close()
  }
}

const ARGUMENTS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
