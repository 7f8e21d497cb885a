import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  buildAttested,
  buildProvider,
  withProvider,
} from '../attestation/evidence/build-attested.ts'
import { BOOT_CONFIGURATION, digestOf } from '../attestation/evidence/build-evidence.ts'
import { BROWSER, openPage } from '../support/browser.ts'
import { driveVerifyPage } from '../support/drive-verify-page.ts'
import { PCR_VALUES, standardChain } from '../support/nitro-builder/document-builder.ts'
import { ROOT_HASH, TLS_KEY } from '../support/provider-builder/evidence-builder.ts'
import { type ServedPages, serveVerifyPage } from '../support/served-pages.ts'

const { bundle, providerPolicy } = buildAttested()
const fileOf = (value: object) => ({
  name: 'bundle.json',
  bytes: Buffer.from(JSON.stringify(value)),
})

let site: ServedPages
let folder = ''
let root = ''
let policy = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-verify-provider-'))
  root = join(folder, 'root.der')
  policy = join(folder, 'policy.json')
  await writeFile(root, standardChain.cabundle[0] ?? new Uint8Array())
  await writeFile(policy, providerPolicy)
  site = await serveVerifyPage()
})
afterAll(async () => {
  await site.close()
  await rm(folder, { recursive: true })
})

/** Opens the page with the expectations that accept the bundle, but for what is changed. */
async function open(path = '/verify', changed: { readonly roots?: readonly string[] } = {}) {
  const { page, faults } = await openPage(`${site.url}${path}`)
  const driver = await driveVerifyPage(page)
  await driver.expect(
    {
      roots: [root],
      pcrs: Object.fromEntries(
        [0, 1, 2].map((at) => [at, Buffer.from(PCR_VALUES.get(at) ?? []).toString('hex')]),
      ),
      configurations: [Buffer.from(digestOf(BOOT_CONFIGURATION)).toString('hex')],
      provider_policy: policy,
      ...changed,
    },
    (file) => file,
  )
  const linkOf = (name: string) =>
    page.locator(`section[aria-labelledby="provider-chain"] [data-link="${name}"]`)
  return { page, faults, driver, linkOf }
}

describe.runIf(BROWSER.isMet)(BROWSER.title("the provider's machine on /verify"), () => {
  it.each(['/verify', '/verify/copy'])(
    'the page %s shows the second chain beside the first, down to the weights',
    async (path) => {
      const { page, faults, driver, linkOf } = await open(path)
      const report = await driver.check(fileOf(bundle))
      expect(report).toMatchObject({ verdict: 'verified', failed: [] })
      expect(report.sentence).toContain('Its machine passes your policy')
      for (const name of ['key', 'machine', 'model-code', 'weights'])
        expect(await linkOf(name).getAttribute('class')).toBe('link holds')
      expect(await linkOf('key').innerHTML()).toContain(TLS_KEY)
      expect(await linkOf('weights').innerHTML()).toContain(ROOT_HASH)
      expect(await page.getByText('who operates the machine').count()).toBe(1)
      expect(faults).toEqual([])
      await page.context().close()
    },
  )

  it('the page shows the weights of a model that is not measured as unknown', async () => {
    const { page, driver, linkOf } = await open()
    const other = buildAttested(undefined, undefined, {
      record: { response: { id: '1', model: 'another' } },
    })
    expect((await driver.check(fileOf(other.bundle))).verdict).toBe('verified')
    expect(await linkOf('weights').getAttribute('class')).toBe('link open')
    expect(await linkOf('weights').textContent()).toContain('unknown: the measured configuration')
    await page.context().close()
  })

  it('the page shows where the second chain breaks of evidence of another provider', async () => {
    const { page, driver, linkOf } = await open()
    const swapped = withProvider(bundle, buildProvider('dstack').bytes)
    const report = await driver.check(fileOf(swapped))
    expect(report.verdict).toBe('invalid')
    expect(report.failed).toEqual(['provider attested'])
    expect(await linkOf('machine').getAttribute('class')).toBe('link broken')
    expect(await linkOf('machine').textContent()).toContain('provider_kind')
    await page.context().close()
  })

  it('no link of the second chain is green when the first leads to a root that is not trusted', async () => {
    const { page, driver, linkOf } = await open('/verify', { roots: [] })
    expect((await driver.check(fileOf(bundle))).verdict).not.toBe('verified')
    for (const name of ['key', 'machine', 'model-code', 'weights']) {
      expect(await linkOf(name).getAttribute('class')).toBe('link void')
      expect(await linkOf(name).locator('.good').count()).toBe(0)
    }
    expect(await linkOf('key').textContent()).toContain(
      'depends on a step that does not hold: Notary',
    )
    await page.context().close()
  })
})
