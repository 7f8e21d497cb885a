import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { startAffidavit } from '../support/affidavit.ts'
import { findChromium } from '../support/attestation-browser/chromium.ts'
import { openPageIn, startBrowser } from '../support/open-page.ts'
import { prepareScene } from './scene.ts'
import { SHOTS } from './shots.ts'

/**
 * `npm run screenshots [-- NAME …]`: starts the service, makes something to be seen, and takes every
 * page, or those named, light and dark, wide and narrow, into `build/screenshots`: its first screen
 * (`…-first.png`), and the whole page. What documents show goes into `docs/images`. Fails when a page
 * reports an error.
 */
const ROOT = join(import.meta.dirname, '../..')
const OUT = join(ROOT, 'build/screenshots')
const SHOWN = join(ROOT, 'docs/images')

const SCHEMES = ['light', 'dark'] as const
const WIDTHS = [1280, 390] as const

const wanted = process.argv.slice(2)
const unknown = wanted.filter((name) => !SHOTS.some((shot) => shot.name === name))
if (unknown.length > 0) {
  console.error(
    `unknown ${unknown.join(', ')}; there are ${SHOTS.map(({ name }) => name).join(', ')}`,
  )
  process.exit(2)
}
if (findChromium() === null) {
  console.error('expected a Chromium: install one, or name it in CHROME_PATH')
  process.exit(1)
}

await mkdir(OUT, { recursive: true })
await mkdir(SHOWN, { recursive: true })
const service = await startAffidavit()
const browser = await startBrowser()
let faulty = 0
try {
  const scene = await prepareScene(service)
  for (const shot of SHOTS) {
    if (wanted.length > 0 && !wanted.includes(shot.name)) continue
    for (const colorScheme of SCHEMES)
      for (const width of WIDTHS) {
        const viewport = { width, height: width > 600 ? 800 : 844 }
        const options = { colorScheme, viewport, deviceScaleFactor: 1 }
        const url = String(new URL(shot.path(scene), service.url))
        const { page, faults } = await openPageIn(browser, url, options)
        await shot.prepare?.(page, scene)
        await settle(page)
        const file = join(OUT, `${shot.name}-${colorScheme}-${width}.png`)
        await page.screenshot({ path: file.replace(/\.png$/, '-first.png') })
        await page.screenshot({ path: file, fullPage: true })
        const unexpected = faults.filter((fault) => !shot.expects?.test(fault))
        console.log(`${file}${unexpected.length > 0 ? `: ${unexpected.join('; ')}` : ''}`)
        faulty += unexpected.length
        if (shot.isShown && colorScheme === 'light' && width === WIDTHS[0])
          await page.screenshot({ path: join(SHOWN, `${shot.name}.png`) })
        await page.context().close()
      }
  }
} finally {
  await browser.close()
  await service.stop()
  await service.remove()
}
process.exitCode = faulty > 0 ? 1 : 0

/** Until the page has no request under way, and what came is drawn. */
async function settle(page: Page): Promise<void> {
  await page.locator('h1').first().waitFor()
  await page.waitForLoadState('networkidle')
  await page.evaluate('document.fonts.ready')
}
