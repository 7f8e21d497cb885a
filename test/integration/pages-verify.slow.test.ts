import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeBase64, encodeHex } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { createRpc } from '#client/rpc.ts'
import { fetchBlockHashes } from '#src/chain/chain-reads.ts'
import { startChainEndpoint } from '../conformance/chain-endpoint.ts'
import type { Demands } from '../conformance/manifest.ts'
import { VECTORS } from '../conformance/manifest.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { complete, fetchEvidence } from '../support/completions.ts'
import { driveVerifyPage, openDetails } from '../support/drive-verify-page.ts'
import { expectInView, SCREENS } from '../support/in-view.ts'
import { type ServedPages, serveVerifyPage } from '../support/served-pages.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let folder = ''
let service: SharedAffidavit
let site: ServedPages
/** From a real gateway, with its block. */
let bundle: EvidenceBundle
let demands: Demands

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-verify-page-'))
  site = await serveVerifyPage()
  service = await useAffidavit()
  const { hash } = await complete(service, 'Is this page right?')
  bundle = JSON.parse(await fetchEvidence(service, hash))
  demands = await readDemands()
})
afterAll(async () => {
  await site?.close()
  await rm(folder, { recursive: true, force: true })
})

/** The policy of a reader who examined the enclave before. */
async function readDemands(): Promise<Demands> {
  const reply = (await (await fetch(`${service.url}/v1/attestation`)).json()) as {
    readonly attestation: string
    readonly boot_configuration: JsonObject
  }
  const { pcrs } = decodeAttestationPayload(decodeBase64(reply.attestation))
  return {
    roots: [service.rootFile],
    pcrs: Object.fromEntries([0, 1, 2].map((at) => [at, encodeHex(pcrs.get(at) as Uint8Array)])),
    configurations: [encodeHex(digestBootConfiguration(reply.boot_configuration))],
  }
}

/** A chain's endpoint that answers pages of any origin with the real chain's answers. */
async function openEndpoint() {
  const rpc = createRpc({ url: service.rpcUrl })
  try {
    const number = bundle.block?.number ?? 0
    const [id, newest] = [await rpc.call('eth_chainId', []), await rpc.call('eth_blockNumber', [])]
    const hash = (await fetchBlockHashes(rpc, [number])).get(number) ?? ''
    return await startChainEndpoint({
      chain_id: Number(id),
      newest_block: Number(newest),
      blocks: { [number]: hash },
    })
  } finally {
    await rpc.close()
  }
}

const fileOf = (path: string) => path
const jsonFile = (value: unknown, name = 'bundle.json') => ({
  name,
  bytes: Buffer.from(JSON.stringify(value)),
})

/** Without the policy that a development gateway gives for itself. */
async function openVerify(options: Parameters<typeof openPage>[1] = {}) {
  const opened = await openPage(`${service.url}/verify`, options)
  await opened.page.getByRole('button', { name: 'Do not use it' }).click()
  return { ...opened, driver: await driveVerifyPage(opened.page) }
}

/** The bundle with one changed member, named by its path. */
function changed(path: string, change: (value: never) => unknown): JsonObject {
  const copy = structuredClone(bundle) as never as Record<string, unknown>
  const names = path.split('.')
  const last = names.pop() as string
  const parent = names.reduce((at, name) => at[name] as Record<string, unknown>, copy)
  parent[last] = change(parent[last] as never)
  return copy as JsonObject
}

const otherHex = (text: string) => text.replace(/.$/, (last) => (last === '0' ? '1' : '0'))

describe.runIf(BROWSER.isMet)(BROWSER.title('/verify'), () => {
  it('the page /verify verifies the bundle of a real gateway, and asks its chain on request', async () => {
    const { page, driver, faults, strangers } = await openVerify()
    const bare = await driver.check(jsonFile(bundle))
    expect([bare.verdict, bare.links.notary, bare.links.code]).toEqual([
      'not_accepted',
      'unaccepted',
      'open',
    ])
    expect(await page.locator('.verdict').textContent()).toContain('nsm/root.crt.pem')

    await driver.expect(demands, fileOf)
    const offline = await driver.check(jsonFile(bundle))
    expect([offline.verdict, offline.links.block]).toEqual(['verified', 'open'])
    expect(strangers).toEqual([])

    // The chain of `npm start` does not answer pages of another origin.
    const deaf = await driver.askChain(service.rpcUrl)
    expect([deaf.verdict, deaf.links.block]).toEqual(['verified', 'open'])
    await page.getByText(/The chain did not confirm the block: .*\(CORS\)/s).waitFor()

    const endpoint = await openEndpoint()
    const [called] = (strangers as string[]).splice(0, strangers.length)
    expect(new URL(called ?? '').origin).toBe(new URL(service.rpcUrl).origin)
    const asked = await driver.askChain(endpoint.url)
    expect(asked.verdict).toBe('verified')
    expect(new Set(Object.values(asked.links))).toEqual(new Set(['holds']))
    expect(Object.keys(asked.links)).toHaveLength(8)
    expect(new Set(strangers.map((url) => new URL(url).origin))).toEqual(new Set([endpoint.url]))
    // The page must not state the result for a chain, or for a depth, that was not checked.
    expect(await page.locator('[data-outdated]').count()).toBe(0)
    await openDetails(page, '.forms')
    await page.getByLabel('Confirmations').fill('999999')
    await page.locator('[data-outdated]').waitFor()
    await endpoint.close()
    expect(faults.filter((fault) => !/CORS|Failed to load resource/.test(fault))).toEqual([])
    await page.context().close()
  })

  it.each(SCREENS)(
    'the first screen of a verdict says who, when and what, $width wide',
    async (viewport) => {
      const { page, driver } = await openVerify({ viewport })
      await driver.expect(demands, fileOf)
      const { sentence } = await driver.check(jsonFile(bundle))
      const heading = page.getByRole('heading', { level: 1 })
      expect(await heading.textContent()).toMatch(/VERIFIED development$/)
      // Evidence from a development enclave is amber and says so.
      expect(await page.locator('main .good').count()).toBe(0)
      expect(sentence).toMatch(
        /^An enclave that runs code that you expect signed .* clock said 20\d\d-/,
      )
      expect(sentence).toMatch(/ answered with model “demo\/echo”\. Block \d+ says 20\d\d-/)
      const gist = page.locator('.gist')
      expect(await gist.textContent()).toMatch(/Asked\s*Is this page right\?\s*Answered/)
      expect(await page.evaluate(LARGEST_TEXT)).toMatch(/VERIFIED development$/)
      const parts = { heading, sentence: page.locator('.sentence'), gist }
      await expectInView(page, parts)
      expect(await page.locator('.forms').getAttribute('open')).toBeNull()
      await page.context().close()
    },
  )

  it('the page /verify shows what the policy lacks, link by link, and what to do', async () => {
    const { page, driver } = await openVerify()
    await driver.expect({ roots: demands.roots ?? [] }, fileOf)
    const report = await driver.check(jsonFile(bundle))
    expect(report.verdict).toBe('incomplete')
    expect(report.links).toMatchObject({ notary: 'holds', code: 'open', log: 'holds' })
    const code = page.locator('[data-link="code"]')
    await code.locator('summary').click()
    expect(await code.textContent()).toContain('Say which code you expect')

    // An old result is not shown as the result of the new input.
    const outdated = page.locator('[data-outdated]')
    expect(await outdated.count()).toBe(0)
    await openDetails(page, '.forms')
    await page.getByLabel('Or measurements').fill(`PCR0=${'ab'.repeat(48)}`)
    await outdated.waitFor()
    await page.getByRole('button', { name: 'Check again' }).click()
    await page.locator('[data-verdict="not_accepted"]').waitFor()
    expect(await outdated.count()).toBe(0)
    await page.context().close()
  })

  it('the page /verify shows each kind of damage at its own link', async () => {
    const { page, driver } = await openVerify()
    await driver.expect(demands, fileOf)
    const damages: readonly (readonly [string, JsonObject])[] = [
      ['request', changed('record.request', (request: object) => ({ ...request, seed: 1 }))],
      ['signature', changed('record.signature', (text: string) => `${text.slice(0, -4)}001b`)],
      ['code', changed('boot_configuration.ca_sha256', () => 'ab'.repeat(32))],
      ['log', changed('record.log.root', otherHex)],
      ['block', changed('block.hash', otherHex)],
    ]
    for (const [link, damaged] of damages) {
      const report = await driver.check(jsonFile(damaged))
      expect([link, report.verdict]).toEqual([link, 'invalid'])
      expect([link, report.links[link]]).toEqual([link, 'broken'])
      // A failed link is open to read; the content is not shown.
      expect(
        await page.locator(`[data-link="${link}"] details`).getAttribute('open'),
      ).not.toBeNull()
      expect(await page.locator('.told').count()).toBe(0)
    }
    await page.context().close()
  })

  it('the page /verify is saved as one file, which verifies from the disk without a network', async () => {
    const { page } = await openVerify()
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Save this page' }).click(),
    ])
    const copy = join(folder, 'copy.html')
    await download.saveAs(copy)
    await page.context().close()

    const saved = await openPage(String(pathToFileURL(copy)), { offline: true })
    const driver = await driveVerifyPage(saved.page)
    await driver.expect(demands, fileOf)
    const report = await driver.check(jsonFile(bundle))
    expect([report.verdict, report.links.code]).toEqual(['verified', 'holds'])
    const image = await driver.check(join(VECTORS, 'eif/synthetic-unsigned.eif'))
    expect(image.verdict).toBe('not_accepted')
    expect(await findBarriers(saved.page)).toEqual([])
    expect(saved).toMatchObject({ faults: [], strangers: [] })
    await saved.page.context().close()
  })

  it('the page /verify knows documents, releases, lists, images and streams by themselves', async () => {
    const { page, driver } = await openVerify()
    const document = { name: 'document', bytes: decodeBase64(bundle.record.attestation) }
    const refused = await driver.check(document)
    expect([refused.verdict, refused.failed]).toEqual(['not_accepted', ['root_untrusted']])
    await driver.expect({ ...demands, configurations: [], historical: true }, fileOf)
    expect((await driver.check(document)).verdict).toBe('verified')
    await driver.expect({}, fileOf)
    const base64 = { name: 'text', bytes: Buffer.from(bundle.record.attestation) }
    expect((await driver.check(base64)).failed).toEqual(['root_untrusted'])
    for (const file of ['releases/measurements.json', 'releases/releases.json'])
      expect((await driver.check(join(VECTORS, file))).verdict).toBe('incomplete')
    const { trusted } = await readReleaseKey()
    await driver.expect({ release_keys: [trusted] }, fileOf)
    expect((await driver.check(join(VECTORS, 'releases/measurements.json'))).verdict).toBe(
      'verified',
    )
    await driver.expect({ release_keys: ['ab'.repeat(32)] }, fileOf)
    expect((await driver.check(join(VECTORS, 'releases/measurements.json'))).verdict).not.toBe(
      'verified',
    )
    await driver.expect({}, fileOf)
    const image = await driver.check(join(VECTORS, 'eif/synthetic-signed.eif'))
    expect([image.verdict, image.sentence]).toEqual([
      'incomplete',
      'The image was measured. You gave no measurements to compare with.',
    ])
    expect((await driver.check(join(VECTORS, 'eif/synthetic-badcrc.eif'))).sentence).toContain(
      'crc',
    )
    const root = await driver.check(service.rootFile)
    expect([root.verdict, root.sentence]).toEqual([
      'refused',
      expect.stringContaining('under “Roots”'),
    ])
    await page.context().close()
  })

  it('the page /verify says what to do about what cannot be checked', async () => {
    const { page, driver } = await openVerify()
    const saying = async (value: unknown) => (await driver.check(jsonFile(value))).sentence
    expect(await saying({ a: 1 })).toContain('Give the file as it came')
    expect(await saying({ choices: [] })).toContain('Give the request that was sent')
    expect((await driver.check({ name: 'empty', bytes: new Uint8Array() })).verdict).toBe('refused')
    await driver.expect({ pcrs: { 0: 'short' } }, fileOf)
    expect(await saying(bundle)).toContain('each register once')
    await driver.expect({ releases: [join(VECTORS, 'releases/releases.json')] }, fileOf)
    expect(await saying(bundle)).toContain('no key that signs releases')
    await driver.expect({ configurations: demands.configurations ?? [] }, fileOf)
    expect(await saying({ request: {}, response: {} })).toContain('Do not rely on this')
    await driver.expect(demands, fileOf)
    await driver.check(jsonFile(bundle))
    const unreachable = await driver.askChain('http://127.0.0.1:1')
    expect(unreachable.verdict).toBe('verified')
    await page.getByText('The chain did not confirm the block').waitFor()
    await page.context().close()
  })

  it('the page /verify takes pasted text, and is used by keys alone', async () => {
    const { page } = await openPage(`${site.url}/verify`)
    await page.locator('.panel').first().waitFor()
    const field = page.getByLabel('Or paste its text')
    await tabTo(page, 'Or paste its text')
    await page.keyboard.insertText(JSON.stringify({ request: {}, response: {} }))
    expect(await field.inputValue()).toContain('request')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    await page.locator('[data-round="1"]').waitFor()
    // The focus moves to the beginning of the report, so that a screen reader reads it.
    await expect.poll(() => page.evaluate('document.activeElement.textContent')).toMatch(/INVALID$/)
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    expect(await page.locator('[data-link="request"] details').getAttribute('open')).toBeNull()
    await page.context().close()
  })
})

async function readReleaseKey(): Promise<{ readonly trusted: string }> {
  const { signatures } = JSON.parse(
    await readFile(join(VECTORS, 'releases/measurements.json'), 'utf8'),
  ) as { readonly signatures: readonly { readonly public_key: string }[] }
  return { trusted: signatures[0]?.public_key ?? '' }
}

const HAS_FOCUS = (field: { readonly ownerDocument: { readonly activeElement: unknown } }) =>
  field.ownerDocument.activeElement === field

/** The text of the element with the largest type. */
const LARGEST_TEXT = `
  [...document.querySelectorAll('body *')]
    .filter(({ innerText }) => innerText?.trim())
    .map((element) => [parseFloat(getComputedStyle(element).fontSize), element.innerText])
    .sort(([one], [other]) => other - one)[0][1]`

/** Presses Tab until the field of this label has the focus. */
async function tabTo(page: Page, label: string): Promise<void> {
  const field = page.getByLabel(label)
  for (let presses = 0; presses < 40; presses++) {
    await page.keyboard.press('Tab')
    if (await field.evaluate(HAS_FOCUS)) return
  }
  throw new Error(`expected Tab to come to ${label}`)
}
