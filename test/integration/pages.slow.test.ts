import { beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { expectInView, SCREENS } from '../support/in-view.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit

/** The Accept header of browsers for a page. */
const BROWSER_ACCEPT = 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8'

beforeAll(async () => {
  service = await useAffidavit()
})

describe('what is served', () => {
  it('the address / serves JSON to programs, and a page to browsers', async () => {
    const ask = (accept: string) => fetch(service.url, { headers: { accept } })
    for (const accept of ['*/*', 'application/json', 'application/json, text/html;q=0.9']) {
      const answer = await ask(accept)
      expect(answer.headers.get('content-type')).toContain('application/json')
      expect(answer.headers.get('vary')?.toLowerCase()).toContain('accept')
    }
    const page = await ask(BROWSER_ACCEPT)
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(page.headers.get('content-security-policy')).toContain("script-src 'self'")
    expect(page.headers.get('x-content-type-options')).toBe('nosniff')
  })

  it('a path that does not exist is a page for a browser, and JSON for programs and in the API', async () => {
    const ask = (path: string, { accept = BROWSER_ACCEPT, method = 'GET' } = {}) =>
      fetch(`${service.url}${path}`, { method, headers: { accept } })
    const page = await ask('/nothing')
    expect(page.status).toBe(404)
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(page.headers.get('content-security-policy')).toContain("script-src 'self'")
    expect(page.headers.get('vary')?.toLowerCase()).toContain('accept')
    expect(await page.text()).toContain('<title>Not found · Affidavit</title>')
    const head = await ask('/nothing', { method: 'HEAD' })
    expect([head.status, head.headers.get('content-type')]).toEqual([
      404,
      'text/html; charset=utf-8',
    ])
    for (const answer of [
      await ask('/nothing', { accept: '*/*' }),
      await ask('/nothing', { accept: 'application/json' }),
      await ask('/nothing', { method: 'POST' }),
      await ask('/v1'),
      await ask('/v1/nothing'),
      await ask(`/v1/images/files/${'0'.repeat(32)}`),
    ]) {
      expect(answer.status).toBe(404)
      expect(await answer.json()).toMatchObject({ error: { code: 'not_found' } })
    }
  })

  it('an asset that does not exist is answered as any path that does not exist', async () => {
    const answer = await fetch(`${service.url}/assets/home-00000000.js`)
    expect(answer.status).toBe(404)
    expect(await answer.json()).toMatchObject({ error: { code: 'not_found' } })
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('every page'), () => {
  const PATHS = ['/', '/verify', '/docs', '/docs/verified-chat', '/console', '/log']

  it.each(
    PATHS.flatMap(
      (path) =>
        [
          [path, 'light', 1280],
          [path, 'dark', 360],
        ] as const,
    ),
  )(
    'the page %s, %s, %i wide, loads nothing from elsewhere, has no barrier and no fault, and fits its width',
    async (path, colorScheme, width) => {
      const { page, faults, strangers } = await openPage(`${service.url}${path}`, {
        colorScheme,
        viewport: { width, height: 800 },
      })
      await page.locator('h1').waitFor()
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    },
  )
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the home page'), () => {
  it.each(SCREENS)(
    'the home page begins with what a visitor can do, then the state, at $width × $height',
    async (viewport) => {
      const { page } = await openPage(service.url, { viewport })
      const link = (name: string) => page.getByRole('link', { name, exact: true })
      const parts = {
        check: link('Check an answer'),
        words: link('What “not checked” means'),
        logs: link('Look at the logs'),
        call: link('Call the API'),
        playground: link('try it in the playground'),
        state: page.getByText('Answers with evidence are served.'),
        development: page.getByText('its enclave may be a simulation'),
      }
      await expectInView(page, parts)
      const order = await page
        .locator('main :is(.actions a, .service-line)')
        .evaluateAll((all) => all.map(({ className }) => className))
      expect(order).toEqual(['', '', '', '', '', 'service-line', 'service-line'])
      await page.context().close()
    },
  )

  /** The home page of a gateway that answers otherwise at one path. */
  const openWith = async (path: string, json: object, status = 200) => {
    const opened = await openPage(`${service.url}/verify`)
    await opened.page.route(path, (route) => route.fulfill({ status, json }))
    await opened.page.goto(service.url)
    return opened
  }
  const MODELS = '**/v1/verified/models'

  it('the home page names models and patterns of models as text, and says where there are none', async () => {
    const patterns = [
      { pattern: 'gpt-*', owned_by: 'openai' },
      { pattern: 'o1-*', owned_by: 'openai' },
      { pattern: '<img src=x>*', owned_by: 'other' },
    ]
    const id = `<img src=x onerror=alert(1)>\u202e'$(touch /tmp/x)'`
    const some = await openWith(MODELS, { data: [{ id }], patterns })
    await some.page.getByText('<img src=x').first().waitFor()
    await some.page.locator('summary').getByText('Other models: any model of a provider').click()
    await some.page.getByRole('row', { name: 'openai gpt-*, o1-*' }).waitFor()
    expect(await some.page.locator('main img').count()).toBe(0)
    expect(await some.page.locator('main').textContent()).not.toContain('\u202e')
    await some.page.context().close()

    const none = await openWith(MODELS, { data: [], patterns: [] })
    await none.page.getByText('the operator pays for no model').waitFor()
    expect(await none.page.getByText('ready', { exact: true }).count()).toBe(0)
    await none.page.context().close()
  })

  it('the home page names the parts that fail, and what still works', async () => {
    const { page } = await openWith(
      '**/readyz',
      {
        error: { message: 'Not ready: database', code: 'not_ready' },
        status: 'failing',
        failing: ['database'],
        chain: { status: 'failing', anchors_pending: 1_234 },
      },
      503,
    )
    await page.getByText('No answers with evidence now: the database does not answer.').waitFor()
    expect(await page.locator('.figures').textContent()).toContain('1,234 pending')
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the page of a path that does not exist'), () => {
  it.each(SCREENS)(
    'the page of a path that does not exist says so and where to go, at $width × $height',
    async (viewport) => {
      const path = '/no/%3Cimg%20src=x%3E'
      const { page, strangers } = await openPage(`${service.url}${path}`, { viewport })
      const main = page.getByRole('main')
      const parts = {
        heading: page.getByRole('heading', { level: 1, name: 'This page does not exist' }),
        path: main.getByText(path),
        navigation: page.getByRole('navigation', { name: 'Pages' }),
        ...Object.fromEntries(
          ['Home', 'Check an answer', 'Look at the logs', 'Call the API'].map((name) => [
            name,
            main.getByRole('link', { name, exact: true }),
          ]),
        ),
      }
      await expectInView(page, parts)
      expect(await main.locator('img').count()).toBe(0)
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(
        viewport.width,
      )
      expect(await findBarriers(page)).toEqual([])
      expect(strangers).toEqual([])
      await page.context().close()
    },
  )
})
