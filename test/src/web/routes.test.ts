import { gzipSync } from 'node:zlib'
import { beforeAll, describe, expect, it } from 'vitest'
import { bundlePages, PAGES, type PageBundle } from '#src/web/bundle.ts'
import { pageHeaders, renderShell } from '#src/web/page.ts'
import { createPages } from '#src/web/routes.ts'

/** What a page may load before it shows anything, bytes of gzip. */
const PAGE_BYTES_MAX = 100_000

let bundle: PageBundle

beforeAll(async () => {
  bundle = await bundlePages()
})

describe('the bundle', () => {
  it.each(PAGES)('the page %s loads at most 100 kB at first, all of which there is', (name) => {
    const { script, imports, styles } = bundle.pages.get(name) ?? expect.fail()
    const bytes = [script, ...imports, ...styles].map(
      (asset) => gzipSync(bundle.assets.get(asset)?.text ?? expect.fail()).length,
    )
    expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(PAGE_BYTES_MAX)
  })

  it('the bundle of pages names assets by their content: the same sources give the same names', async () => {
    expect([...(await bundlePages()).assets]).toEqual([...bundle.assets])
    for (const name of bundle.assets.keys()) expect(name).toMatch(/^[a-z-]+-[A-Z0-9]{8}\.(js|css)$/)
  })
})

describe('the frame of a page', () => {
  it('the frame of a page has no inline script and no inline style, so that its policy can forbid them', () => {
    const html = renderShell('Home', bundle.pages.get('home') ?? expect.fail())
    expect(html.match(/<script(?![^>]* src="\/assets\/)[^>]*>/g)).toBeNull()
    expect(html).not.toMatch(/<style|style=|\son\w+=/)
  })

  it('the frame of a page forbids all foreign content', () => {
    const policy = pageHeaders()['content-security-policy']
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'")
    expect(policy).not.toMatch(/unsafe|\*/)
  })
})

describe('bundling', () => {
  it('bundling of a page is done once for all who ask, and tried again after it failed', async () => {
    let runs = 0
    const pages = createPages({
      bundle: async () => {
        runs++
        if (runs === 1) throw new Error('no memory')
        return bundle
      },
    })
    const show = () =>
      pages.showHome({ set: () => undefined } as unknown as Parameters<typeof pages.showHome>[0])
    await expect(show()).rejects.toThrow('no memory')
    await Promise.all([show(), show()])
    expect(runs).toBe(2)
  })
})
