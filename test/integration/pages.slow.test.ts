import { beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit

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
    const page = await ask('text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8')
    expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8')
    expect(page.headers.get('content-security-policy')).toContain("script-src 'self'")
    expect(page.headers.get('x-content-type-options')).toBe('nosniff')
  })

  it('an asset that does not exist is answered as any path that does not exist', async () => {
    const answer = await fetch(`${service.url}/assets/home-00000000.js`)
    expect(answer.status).toBe(404)
    expect(await answer.json()).toMatchObject({ error: { code: 'not_found' } })
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('every page'), () => {
  const PATHS = ['/', '/verify', '/docs', '/console', '/log']

  it.each(
    PATHS.flatMap(
      (path) =>
        [
          [path, 'light', 1280],
          [path, 'dark', 1280],
          [path, 'light', 360],
        ] as const,
    ),
  )(
    'the page %s, %s, %i wide, loads nothing from elsewhere, has no barrier and no fault, and fits its width',
    async (path, colorScheme, width) => {
      const { page, faults, strangers } = await openPage(`${service.url}${path}`, {
        ...{ colorScheme, viewport: { width, height: 800 } },
      })
      await page.locator('h1').waitFor()
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    },
  )
})
