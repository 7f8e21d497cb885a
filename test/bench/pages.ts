import { gzipSync } from 'node:zlib'
import { bundlePages } from '#src/web/bundle.ts'
import { startAffidavit } from '../support/affidavit.ts'
import { findChromium } from '../support/attestation-browser/chromium.ts'
import { openPageIn, startBrowser } from '../support/open-page.ts'

/**
 * `node test/bench/pages.ts`: what each page loads before it shows its content, and how long that
 * takes in a browser with an empty cache: the first page of a gateway, which bundles all pages, and
 * each page after it. The comparator is an answer of a few bytes in the same browser.
 */
const ROUNDS = 9

const { assets, pages } = await bundlePages()
console.log('bytes at first (gzip), against a limit of 100,000')
for (const [name, { script, imports, styles }] of pages) {
  const all = [script, ...imports, ...styles].map((one) => assets.get(one)?.text ?? '')
  const bytes = all.map((text) => gzipSync(text).length).reduce((sum, one) => sum + one, 0)
  console.log(`  ${name.padEnd(12)} ${bytes.toLocaleString('en').padStart(8)}`)
}

if (findChromium() === null) console.log('no Chromium: times are not measured')
else await measure()

async function measure(): Promise<void> {
  const service = await startAffidavit()
  const browser = await startBrowser()
  const open = async (path: string, shown: string) => {
    const start = performance.now()
    const { page } = await openPageIn(browser, `${service.url}${path}`)
    await page.locator(shown).first().waitFor()
    const ms = performance.now() - start
    await page.context().close()
    return ms
  }
  try {
    await open('/healthz', 'body')
    console.log(`first page of the gateway   ${(await open('/', 'h1')).toFixed(0)} ms`)
    const paths = [
      '/',
      ...[...pages.keys()].filter((name) => name !== 'home').map((name) => `/${name}`),
    ]
    const times = new Map<string, number[]>()
    for (let round = 0; round < ROUNDS; round++)
      for (const path of ['/healthz', ...paths])
        times.set(path, [
          ...(times.get(path) ?? []),
          await open(path, path === '/healthz' ? 'body' : 'h1'),
        ])
    const base = medianOf(times.get('/healthz'))
    for (const [path, all] of times)
      console.log(
        `${path.padEnd(16)} p50 ${medianOf(all).toFixed(0).padStart(5)} ms   ${(medianOf(all) / base).toFixed(2)} × /healthz`,
      )
  } finally {
    await browser.close()
    await service.stop()
    await service.remove()
  }
}

function medianOf(times: readonly number[] = []): number {
  return times.toSorted((one, other) => one - other)[Math.floor(times.length / 2)] ?? Number.NaN
}
