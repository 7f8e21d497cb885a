import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Router } from '@koa/router'
import Koa from 'koa'
import { chromium } from 'playwright-core'
import { expect, it } from 'vitest'
import { createMemoryBudget } from '../../src/api/admission.ts'
import { createCallSignals } from '../../src/api/call-signals.ts'
import type { RequestState } from '../../src/api/context.ts'
import { referenceRoutes } from '../../src/api/openapi/routes.ts'
import { ROUTES } from '../support/api-routes.ts'
import { findChromium } from '../support/attestation-browser/chromium.ts'
import { recordLog } from '../support/chain.ts'

const executablePath = findChromium()

it.skipIf(executablePath === null)(
  'the reference page shows every operation in a browser without a network (skipped without a Chromium)',
  { timeout: 60_000 },
  async () => {
    const router = new Router<RequestState>()
    const serving = {
      signals: createCallSignals(),
      memory: createMemoryBudget(0),
      keepAliveMs: 1_000,
      now: Date.now,
      log: recordLog().log,
    }
    for (const { path, serve } of referenceRoutes(ROUTES))
      router.get(path, (context) => serve(context, serving))
    const server = createServer(new Koa<RequestState>().use(router.routes()).callback()).listen(
      0,
      '127.0.0.1',
    )
    await once(server, 'listening')
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const args = [
      '--no-sandbox',
      '--disable-gpu',
      '--no-first-run',
      '--disable-background-networking',
    ]
    const browser = await chromium.launch({
      executablePath: executablePath ?? '',
      headless: true,
      args,
    })
    try {
      const page = await browser.newPage()
      const asked: string[] = []
      const faults: string[] = []
      page.on('request', (request) => asked.push(new URL(request.url()).pathname))
      page.on('console', (message) => faults.push(message.text()))
      page.on('pageerror', (fault) => faults.push(fault.message))
      await page.goto(`${origin}/docs`)
      expect(await page.locator('section').count()).toBe(ROUTES.length)
      expect(await page.locator('nav a').count()).toBe(ROUTES.length)
      // The style is allowed by the page's own policy, and applied.
      expect(await page.evaluate('getComputedStyle(document.body).display')).toBe('grid')
      await page.locator('nav a', { hasText: 'POST /v1/embeddings' }).click()
      const section = page.locator('section:target')
      await section.locator('summary').first().click()
      expect(await section.getByText('encoding_format', { exact: true }).isVisible()).toBe(true)
      expect(asked.filter((path) => path !== '/docs' && path !== '/favicon.ico')).toEqual([])
      expect(faults.filter((fault) => !fault.includes('favicon'))).toEqual([])
      // A script that got into the page would not run.
      await page.evaluate(`{
        const script = document.createElement('script')
        script.textContent = 'window.ran = true'
        document.body.append(script)
      }`)
      expect(await page.evaluate('window.ran === undefined')).toBe(true)
    } finally {
      await browser.close()
      server.closeAllConnections()
      server.close()
    }
  },
)
