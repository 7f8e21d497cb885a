import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core'
import { findChromium } from './attestation-browser/chromium.ts'

/** An open page, and what went wrong in it. */
export type OpenPage = {
  readonly page: Page
  /** Exceptions, refusals by the page's policy, errors on the console. */
  readonly faults: readonly string[]
  /** URLs outside the page's own origin that were requested. */
  readonly strangers: readonly string[]
}

/** For one act in a page: far above the pauses of a busy machine. */
const ACT_TIMEOUT_MS = 90_000

/** Starts the Chromium of this machine. */
export function startBrowser(): Promise<Browser> {
  return chromium.launch({
    executablePath: findChromium() ?? '',
    headless: true,
    args: ARGUMENTS,
  })
}

/** Opens a page in a new context. */
export async function openPageIn(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<OpenPage> {
  const context = await browser.newContext({ reducedMotion: 'reduce', ...options })
  context.setDefaultTimeout(ACT_TIMEOUT_MS)
  const page = await context.newPage()
  const faults: string[] = []
  const strangers: string[] = []
  page.on('pageerror', (fault) => faults.push(fault.message))
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') faults.push(message.text())
  })
  const { origin } = new URL(url)
  page.on('request', (request) => {
    const asked = new URL(request.url())
    if (!['data:', 'blob:'].includes(asked.protocol) && asked.origin !== origin)
      strangers.push(request.url())
  })
  await page.goto(url)
  return { page, faults, strangers }
}

const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
