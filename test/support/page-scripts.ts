import type { Page, Route } from 'playwright-core'

/** Runs in a page: adds up the layout shifts that no input caused, in `shifted`. */
export const WATCH_SHIFTS = `
  globalThis.shifted = 0
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput } of list.getEntries())
      if (!hadRecentInput) globalThis.shifted += value
  }).observe({ type: 'layout-shift' })`

// biome-ignore lint/suspicious/noExplicitAny: answers are altered at will.
export type Altered = any

/** Changes the gateway's answers to a page at these paths: in place, or to what `alter` returns. */
export async function alterAnswers(
  page: Page,
  path: RegExp,
  alter: (answer: Altered, url: URL) => unknown,
): Promise<void> {
  await page.route(path, async (route: Route) => {
    try {
      const response = await route.fetch()
      const json = await response.json()
      await route.fulfill({ response, json: alter(json, new URL(route.request().url())) ?? json })
    } catch (fault) {
      // A page that was closed meanwhile needs no answer.
      if (!page.isClosed() && !/closed|disposed/.test(String(fault))) throw fault
    }
  })
}
