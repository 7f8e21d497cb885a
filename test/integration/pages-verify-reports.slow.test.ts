import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { writeEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import {
  buildAttested,
  buildProvider,
  withProvider,
} from '../attestation/evidence/build-attested.ts'
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../attestation/evidence/build-evidence.ts'
import { buildCalls, sessionOf } from '../attestation/session/build-session.ts'
import { type Demands, VECTORS } from '../conformance/manifest.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { driveVerifyPage } from '../support/drive-verify-page.ts'
import { PCR_VALUES, standardChain } from '../support/nitro-builder/document-builder.ts'
import { ROOT_HASH, TLS_KEY } from '../support/provider-builder/evidence-builder.ts'
import { type ServedPages, serveVerifyPage } from '../support/served-pages.ts'

const { bundle, providerPolicy } = buildAttested()

let site: ServedPages
let folder = ''
/** What accepts evidence that the builders make. */
let demands: Demands

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-verify-reports-'))
  const [root, policy] = [join(folder, 'root.der'), join(folder, 'policy.json')]
  await writeFile(root, standardChain.cabundle[0] ?? new Uint8Array())
  await writeFile(policy, `{"providers":${Buffer.from(providerPolicy)}}`)
  const pcrs = [0, 1, 2].map((at) => [at, encodeHex(PCR_VALUES.get(at) ?? new Uint8Array())])
  demands = {
    roots: [root],
    pcrs: Object.fromEntries(pcrs),
    configurations: [encodeHex(digestOf(BOOT_CONFIGURATION))],
    policy,
  }
  site = await serveVerifyPage()
})
afterAll(async () => {
  await site?.close()
  await rm(folder, { recursive: true })
})

const fileOf = (path: string) => path
const jsonFile = (value: unknown, name = 'bundle.json') => ({
  name,
  bytes: Buffer.from(JSON.stringify(value)),
})

const sessionFile = (calls: readonly EvidenceBundle[]) => ({
  name: 'session.jsonl',
  bytes: Buffer.from(writeEvidenceLines(sessionOf(calls))),
})

/** Opens the page with the policy that accepts the evidence, but for what is changed. */
async function open(changed: Demands = {}, options?: Parameters<typeof openPage>[1]) {
  const opened = await openPage(`${site.url}/verify`, options)
  const driver = await driveVerifyPage(opened.page)
  await driver.expect({ ...demands, ...changed }, fileOf)
  return { ...opened, driver }
}

describe.runIf(BROWSER.isMet)(BROWSER.title('the second chain and sessions on /verify'), () => {
  it('the page /verify shows the machine of a provider down to the weights, and where its chain breaks', async () => {
    const { page, faults, driver } = await open()
    const linkOf = (name: string) =>
      page.locator(`section[aria-labelledby="provider-chain"] [data-link="${name}"]`)
    const links = ['key', 'machine', 'model-code', 'weights']
    const report = await driver.check(jsonFile(bundle))
    expect(report).toMatchObject({ verdict: 'verified', failed: [] })
    expect(report.sentence).toContain('Its machine passes your policy')
    for (const name of links) expect(await linkOf(name).getAttribute('class')).toBe('link holds')
    expect(await linkOf('key').innerHTML()).toContain(TLS_KEY)
    expect(await linkOf('weights').innerHTML()).toContain(ROOT_HASH)
    expect(await page.getByText('who operates the machine').count()).toBe(1)

    const another = { record: { response: { id: '1', model: 'another' } } }
    const unmeasured = buildAttested(undefined, undefined, another)
    expect((await driver.check(jsonFile(unmeasured.bundle))).verdict).toBe('verified')
    expect(await linkOf('weights').getAttribute('class')).toBe('link open')
    expect(await linkOf('weights').textContent()).toContain('unknown: the measured configuration')

    const swapped = withProvider(bundle, buildProvider('dstack').bytes)
    const broken = await driver.check(jsonFile(swapped))
    expect([broken.verdict, broken.failed]).toEqual(['not_accepted', ['provider attested']])
    expect(await linkOf('machine').getAttribute('class')).toBe('link broken')
    expect(await linkOf('machine').textContent()).toContain('provider_kind')

    // No link is green when the first chain leads to a root that is not trusted.
    await driver.expect({ ...demands, roots: [] }, fileOf)
    expect((await driver.check(jsonFile(bundle))).verdict).not.toBe('verified')
    for (const name of links) {
      expect(await linkOf(name).getAttribute('class')).toBe('link void')
      expect(await linkOf(name).locator('.good').count()).toBe(0)
    }
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the page /verify shows the verdict, the checks and each call of a session', async () => {
    const { page, faults, driver } = await open({ pcrs: {}, any_measurement: true, roots: [] })
    const calls = buildCalls()
    const report = await driver.check(sessionFile(calls.toSpliced(1, 1)))
    expect(report.verdict).toBe('invalid')
    expect(report.failed).toEqual(
      expect.arrayContaining(['evidence of calls', 'none missing', 'previous hash']),
    )
    expect(await page.locator('[data-call]').count()).toBe(calls.length - 1)
    expect(await page.getByText('It is warm in Rome.').count()).toBe(0)
    await driver.expect({ any_measurement: true, roots: demands.roots ?? [] }, fileOf)
    expect((await driver.check(sessionFile(calls))).verdict).toBe('incomplete')
    const said = page.locator('[data-call="1"] .messages').getByText('It is warm in Rome.')
    expect(await said.count()).toBe(1)
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the page /verify uses the policy of a link when its reader says so, and makes such links', async () => {
    const measurements = `PCR0=${'ab'.repeat(48)}`
    const link = `${site.url}/verify#measurements=${encodeURIComponent(measurements)}`
    const { page } = await openPage(`${link}&roots=x&anyMeasurement=true`)
    await page.getByText('The link that you followed').waitFor()
    const keys = page.getByLabel('Keys that sign releases')
    const field = page.getByLabel('Or measurements')
    expect(await field.inputValue()).toBe('')
    expect(await page.evaluate('JSON.stringify(sessionStorage)')).not.toContain('abab')
    await page.getByText('Your policy: code, configuration, roots, providers').click()
    await keys.fill('cd'.repeat(32))
    await page.getByRole('button', { name: 'Expect this' }).click()
    expect(await keys.inputValue()).toBe('cd'.repeat(32))
    await keys.fill('')
    expect(await field.inputValue()).toBe(measurements)
    expect(await page.getByLabel('Accept any code').isChecked()).toBe(false)
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.getByRole('button', { name: 'a link with this policy' }).click()
    await expect.poll(() => page.evaluate('navigator.clipboard.readText()')).toBe(link)
    await page.context().close()
  })
})

/** Opens every link of the chain. */
const OPEN_LINKS = "for (const one of document.querySelectorAll('.link details')) one.open = true"

/**
 * A stranger's text: markup, a script, terminal escapes, characters that reverse the direction of
 * text.
 */
const HOSTILE =
  '</bdi></script><img src=x onerror="hacked=1"><script>hacked=1</script>\u202Egnp.exe\u2066\u001b[2J\u0007'

describe.runIf(BROWSER.isMet)(BROWSER.title('what strangers write'), () => {
  const built = (content: string) =>
    buildEvidence({
      record: {
        request: {
          model: HOSTILE,
          [HOSTILE]: 1,
          messages: [{ role: 'user', name: HOSTILE, content }],
        },
        response: {
          id: 'a',
          object: 'chat.completion',
          created: 1,
          model: HOSTILE,
          choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content } }],
        },
      },
    }).bundle
  /** Without the policy of a provider, which this evidence has not. */
  const openPlain = async (options?: Parameters<typeof openPage>[1]) => {
    const opened = await openPage(`${site.url}/verify`, options)
    const driver = await driveVerifyPage(opened.page)
    const { policy: _, ...plain } = demands
    await driver.expect(plain, fileOf)
    return { ...opened, driver, plain }
  }

  async function expectText(page: Page): Promise<void> {
    expect(await page.evaluate('globalThis.hacked')).toBeUndefined()
    expect(await page.locator('main img, main script').count()).toBe(0)
    expect(
      await page.evaluate(
        "/[\\u202a-\\u202e\\u2066-\\u2069\\u001b]/.test(document.querySelector('main').innerText)",
      ),
    ).toBe(false)
  }

  it('text of strangers stays text in every kind of report, and in the names of files', async () => {
    const { page, faults, driver } = await openPlain()
    const name = `${HOSTILE.replaceAll('/', '_')}.json`
    expect((await driver.check(jsonFile(built(HOSTILE), name))).verdict).toBe('verified')
    await page.evaluate(OPEN_LINKS)
    expect(await page.locator('.told').textContent()).toContain('\\u{202e}gnp.exe')
    await expectText(page)
    const call = { request: {}, hash: HOSTILE }
    const hostile: readonly unknown[] = [
      HOSTILE,
      { [HOSTILE]: HOSTILE },
      { format: HOSTILE },
      { format: 'affidavit-evidence', version: HOSTILE },
      { choices: [], affidavit: { hash: HOSTILE } },
      { request: HOSTILE, response: HOSTILE, hash: HOSTILE, receipt: HOSTILE, log: HOSTILE },
      { completions: [call, call] },
      { format: 'affidavit-release/v1', release: HOSTILE },
    ]
    for (const value of hostile) {
      expect((await driver.check(jsonFile(value))).verdict).not.toBe('verified')
      await expectText(page)
    }
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('where evidence says it is from is shown as text, not checked, and no one is asked there', async () => {
    const { page, faults, driver, plain } = await openPlain()
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    const source = {
      gateway: 'https://gateway.example',
      operator: '<a href="javascript:hacked=1">Example</a>',
      releases: 'https://gateway.example/releases.json',
    }
    const named = jsonFile({ ...built('hello'), source })
    const text = () => page.locator('main').textContent()
    expect((await driver.check(named)).verdict).toBe('verified')
    expect(await text()).toContain(': a hint, not checked.')
    expect(await text()).not.toContain('The evidence names')
    await driver.expect({ roots: plain.roots ?? [] }, fileOf)
    expect((await driver.check(named)).verdict).toBe('incomplete')
    expect(await text()).toContain(
      `This evidence says it is from https://gateway.example (“${source.operator.replaceAll('"', '\\u{22}')}”; releases at ${source.releases}): a hint, not checked. The evidence names https://gateway.example`,
    )
    expect(
      await page.locator('main a[href*="gateway.example"], main a[href^="javascript"]').count(),
    ).toBe(0)
    expect(asked.filter((url) => url.includes('gateway.example'))).toEqual([])
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('text of strangers may be megabytes: the page shows a bounded part', async () => {
    const { page, faults, driver } = await openPlain()
    const file = join(folder, 'large.json')
    await writeFile(file, JSON.stringify(built('<b>x\n</b>\u202e'.repeat(500_000))))
    expect((await driver.check(file)).verdict).toBe('verified')
    expect(await page.evaluate("document.querySelector('main').innerText.length")).toBeLessThan(
      20_000,
    )
    await driver.expect({}, fileOf)
    const many = { completions: Array(5_000).fill({ request: {}, hash: HOSTILE }) }
    expect((await driver.check(jsonFile(many))).verdict).toBe('invalid')
    expect(await page.locator('[data-link]').count()).toBeLessThan(400)
    await expectText(page)
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('no report has a barrier, or is wider than a phone', async () => {
    const viewport = { width: 390, height: 800 }
    const { page, driver } = await openPlain({ colorScheme: 'dark', viewport })
    const sources = [
      jsonFile(built(HOSTILE)),
      jsonFile({ ...built('x'), block: null }),
      jsonFile({ request: {}, response: {} }),
      join(VECTORS, 'eif/synthetic-signed.eif'),
      join(VECTORS, 'releases/releases.json'),
      jsonFile({ nothing: 1 }),
    ]
    for (const source of sources) {
      await driver.check(source)
      await page.evaluate(OPEN_LINKS)
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390)
    }
    await page.context().close()
  })
})
