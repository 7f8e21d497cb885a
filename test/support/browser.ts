import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll } from 'vitest'
import { needProgram } from './needs.ts'
import { type OpenPage, openPageIn, startBrowser } from './open-page.ts'

let browser: Browser | null = null

afterAll(async () => {
  await browser?.close()
  browser = null
})

/** A Chromium to test with; CHROME_PATH names one. */
export const BROWSER = needProgram('chromium')

/** Opens a page in a new context, in the one browser of this file's tests. */
export async function openPage(
  url: string,
  options: BrowserContextOptions = {},
): Promise<OpenPage> {
  browser ??= await startBrowser()
  return openPageIn(browser, url, options)
}

/** What axe finds in a page now, a line for each: rule, and where. */
export async function findBarriers(page: Page): Promise<readonly string[]> {
  // Not by a script element, because the page's policy forbids it.
  await page.evaluate(AXE)
  const { violations } = (await page.evaluate(
    "axe.run(document, { resultTypes: ['violations'] })",
  )) as { readonly violations: readonly Violation[] }
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html}: ${failureSummary}`),
  )
}

/** The part of axe's results that a report needs. */
type Violation = {
  readonly id: string
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[]
}

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
