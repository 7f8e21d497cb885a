import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startChainEndpoint } from '../conformance/chain-endpoint.ts'
import { type ConformanceCase, readManifest, VECTORS } from '../conformance/manifest.ts'
import { BROWSER, openPage } from '../support/browser.ts'
import {
  driveVerifyPage,
  type PageReport,
  type VerifyPageDriver,
} from '../support/drive-verify-page.ts'
import { type ServedPages, serveVerifyPage } from '../support/served-pages.ts'

let site: ServedPages

beforeAll(async () => {
  site = await serveVerifyPage()
})
afterAll(() => site?.close())

const fileOf = (path: string) => join(VECTORS, path)

/** The page's report on a case that is given through the page's own fields. */
async function runCase(driver: VerifyPageDriver, one: ConformanceCase): Promise<PageReport> {
  const { chain, confirmations } = one.demands
  await driver.take(one.kind === 'document' ? 'document' : 'auto')
  await driver.expect(one.demands, fileOf)
  const report = await driver.check(fileOf(one.source))
  if (chain === undefined) return report
  const endpoint = await startChainEndpoint(chain)
  try {
    return await driver.askChain(endpoint.url, confirmations)
  } finally {
    await endpoint.close()
  }
}

/**
 * The difference between the page and the expected result of the command line; empty when they
 * agree.
 */
function differenceOf({ name, kind, expect }: ConformanceCase, got: PageReport): readonly string[] {
  if (expect.failed === null) return got.verdict === 'refused' ? [] : [`${name}: ${got.sentence}`]
  // A report on a document does not list the checks that were not made.
  const notChecked = kind === 'document' ? [] : got.notChecked
  const [wanted, found] = [
    [expect.verdict, expect.failed.toSorted(), (expect.not_checked ?? []).toSorted()],
    [
      kind === 'document' && got.verdict === 'not_accepted' ? 'invalid' : got.verdict,
      got.failed.toSorted(),
      notChecked.toSorted(),
    ],
  ].map((all) => JSON.stringify(all))
  return wanted === found ? [] : [`${name}: expected ${wanted}, got ${found}: ${got.sentence}`]
}

/**
 * One case for each verdict and each check that fails or stays open, of each kind of source, and for
 * each field of the form. Unit tests judge all cases by the command line.
 */
function chooseCases(): readonly ConformanceCase[] {
  const seen = new Set<string>()
  return readManifest().cases.filter(({ kind, demands, expect: { verdict, failed, ...rest } }) => {
    const shown = [
      `${kind} ${failed === null ? 'unreadable' : verdict}`,
      ...(failed ?? []).map((name) => `${kind} fails ${name}`),
      ...(rest.not_checked ?? []).map((name) => `${kind} leaves ${name}`),
      ...Object.keys(demands).map((name) => `given ${name}`),
    ]
    const isNew = shown.some((one) => !seen.has(one))
    for (const one of shown) seen.add(one)
    return isNew
  })
}

describe.runIf(BROWSER.isMet)(BROWSER.title('the page /verify'), () => {
  it('the page /verify finds for each check and verdict what the command line must find', {
    timeout: 600_000,
  }, async () => {
    const { page, faults } = await openPage(`${site.url}/verify`)
    const driver = await driveVerifyPage(page)
    const cases = chooseCases()
    const differences: string[] = []
    for (const one of cases) differences.push(...differenceOf(one, await runCase(driver, one)))
    expect(differences).toEqual([])
    expect(cases.length).toBeGreaterThan(100)
    expect(faults).toEqual([])
    await page.context().close()
  })
})
