import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
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
import {
  BOOT_CONFIGURATION,
  buildEvidence,
  digestOf,
} from '../attestation/evidence/build-evidence.ts'
import { startChainEndpoint } from '../conformance/chain-endpoint.ts'
import type { Demands } from '../conformance/manifest.ts'
import { VECTORS } from '../conformance/manifest.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { driveVerifyPage, openDetails } from '../support/drive-verify-page.ts'
import { SCREENS, standInView } from '../support/in-view.ts'
import { PCR_VALUES, standardChain } from '../support/nitro-builder/document-builder.ts'
import { type ServedPages, serveVerifyPage } from '../support/served-pages.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const COMPLETIONS = '/v1/verified/chat/completions'

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
  bundle = await makeBundle()
  demands = await readDemands()
})
afterAll(async () => {
  await site?.close()
  await rm(folder, { recursive: true, force: true })
})

const headers = () => ({
  authorization: `Bearer ${service.apiKey}`,
  'content-type': 'application/json',
})

async function makeBundle(model = 'demo/echo'): Promise<EvidenceBundle> {
  const body = { model, messages: [{ role: 'user', content: 'Is this page right?' }] }
  const made = await fetch(service.url + COMPLETIONS, {
    method: 'POST',
    headers: headers(),
    body: JSON.stringify(body),
  })
  const { hash } = (await made.json()) as { readonly hash: string }
  const readBundle = async () => {
    const reply = await fetch(`${service.url}${COMPLETIONS}/${hash}/evidence`, {
      headers: headers(),
    })
    return (await reply.json()) as EvidenceBundle
  }
  const deadline = performance.now() + 60_000
  for (;;) {
    const read = await readBundle()
    if (read.block !== null) return read
    if (performance.now() > deadline) throw new Error('expected the anchor in a block')
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
}

/** The expectations of a reader who examined the enclave before. */
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

/** Without the expectations that a development gateway gives about itself. */
async function openVerify(options: Parameters<typeof openPage>[1] = {}) {
  const opened = await openPage(`${service.url}/verify`, options)
  await opened.page.getByRole('button', { name: 'Do not use them' }).click()
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
      'undetermined',
      'undetermined',
      'open',
    ])
    expect(await page.locator('.verdict').textContent()).toContain('nsm/root.crt.pem')

    await driver.expect(demands, fileOf)
    const offline = await driver.check(jsonFile(bundle))
    expect([offline.verdict, offline.links.block]).toEqual(['verified', 'open'])
    expect(strangers).toEqual([])

    // The chain of `npm start` does not answer pages of another origin.
    const deaf = await driver.askChain(service.rpcUrl)
    expect([deaf.verdict, deaf.sentence]).toEqual(['refused', expect.stringContaining('CORS')])

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
      expect(sentence).toMatch(/^An enclave that runs code that you expect signed .* at 20\d\d-/)
      expect(sentence).toMatch(/ answered with model “demo\/echo”\. Block \d+, made at 20\d\d-/)
      const gist = page.locator('.gist')
      expect(await gist.textContent()).toMatch(/Asked\s*Is this page right\?\s*Answered/)
      expect(await page.evaluate(LARGEST_TEXT)).toMatch(/VERIFIED development$/)
      const parts = { heading, sentence: page.locator('.sentence'), gist }
      expect(await standInView(page, parts)).toEqual({ heading: true, sentence: true, gist: true })
      expect(await page.locator('.forms').getAttribute('open')).toBeNull()
      await page.context().close()
    },
  )

  it('the page /verify shows both chains of an answer of the attested demonstration provider', async () => {
    const { page, faults, driver } = await openVerify()
    await driver.expect({ ...demands, provider_policy: service.attested.policyFile }, fileOf)
    const states = { 'demo/sealed': 'link holds', 'demo/unsealed': 'link open' }
    for (const [model, state] of Object.entries(states)) {
      const report = await driver.check(jsonFile(await makeBundle(model)))
      expect(report).toMatchObject({ verdict: 'verified', failed: [] })
      const weights = page
        .locator('[aria-labelledby="provider-chain"] [data-link="weights"]')
        .last()
      expect(await weights.getAttribute('class')).toBe(state)
    }
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the page /verify shows which expectations are missing, link by link, and what to do', async () => {
    const { page, driver } = await openVerify()
    await driver.expect({ roots: demands.roots ?? [] }, fileOf)
    const report = await driver.check(jsonFile(bundle))
    expect(report.verdict).toBe('consistent')
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
    await page.locator('[data-verdict="invalid"]').waitFor()
    expect(await outdated.count()).toBe(0)
    await page.context().close()
  })

  it('the page /verify shows each kind of damage at its own link', async () => {
    const { page, driver } = await openVerify()
    await driver.expect(demands, fileOf)
    const damages: readonly (readonly [string, JsonObject])[] = [
      ['request', changed('record.request', (request: object) => ({ ...request, seed: 1 }))],
      ['request', changed('record.response.choices', () => [])],
      ['hash', changed('record.created_at', (at: number) => at + 1)],
      ['hash', changed('record.hash', otherHex)],
      ['signature', changed('record.signature', (text: string) => `${text.slice(0, -4)}001b`)],
      [
        'notary',
        changed('record.attestation', (text: string) => text.replace(/.{8}$/, 'AAAAAAAA')),
      ],
      ['code', changed('boot_configuration.ca_sha256', () => 'ab'.repeat(32))],
      ['log', changed('record.log.root', otherHex)],
      ['anchor', changed('record.tx_hash', otherHex)],
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

  it('the page /verify shows another release at the code, and content that is not what was kept', async () => {
    const { page, driver } = await openVerify()
    await driver.expect({ ...demands, pcrs: { 0: 'ab'.repeat(48) } }, fileOf)
    const other = await driver.check(jsonFile(bundle))
    expect([other.verdict, other.failed]).toEqual(['invalid', ['measurements']])
    expect(other.links).toMatchObject({ code: 'broken', notary: 'holds' })

    const request = join(folder, 'request.json')
    await writeFile(request, JSON.stringify({ model: 'demo/echo', messages: [] }))
    await driver.expect({ ...demands, request }, fileOf)
    const foreign = await driver.check(jsonFile(bundle))
    expect([foreign.verdict, foreign.failed]).toEqual(['invalid', ['request given']])
    expect(foreign.sentence).toContain('not evidence of the texts that you kept')
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
    expect(image.verdict).toBe('invalid')
    expect(await findBarriers(saved.page)).toEqual([])
    expect(saved).toMatchObject({ faults: [], strangers: [] })
    await saved.page.context().close()
  })

  it('the page /verify knows documents, releases, lists, images and streams by themselves', async () => {
    const { page, driver } = await openVerify()
    const document = { name: 'document', bytes: decodeBase64(bundle.record.attestation) }
    const refused = await driver.check(document)
    expect([refused.verdict, refused.failed]).toEqual(['undetermined', ['root_untrusted']])
    await driver.expect({ ...demands, configurations: [], historical: true }, fileOf)
    expect((await driver.check(document)).verdict).toBe('verified')
    await driver.expect({}, fileOf)
    const base64 = { name: 'text', bytes: Buffer.from(bundle.record.attestation) }
    expect((await driver.check(base64)).failed).toEqual(['root_untrusted'])
    for (const file of ['releases/measurements.json', 'releases/releases.json'])
      expect((await driver.check(join(VECTORS, file))).verdict).toBe('consistent')
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
      'consistent',
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
    expect([unreachable.verdict, unreachable.sentence]).toEqual([
      'refused',
      expect.stringContaining('another endpoint'),
    ])
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

  it('the page /verify uses expectations of a link when its reader says so, and makes such links', async () => {
    const { page } = await openPage(
      `${site.url}/verify#measurements=PCR0%3D${'ab'.repeat(48)}&roots=x&anyMeasurement=true`,
    )
    await page.getByText('The link that you followed').waitFor()
    const keys = page.getByLabel('Keys that sign releases')
    expect(await page.getByLabel('Or measurements').inputValue()).toBe('')
    await page.getByText('What you expect: code, configuration, roots').click()
    await keys.fill('cd'.repeat(32))
    await page.getByRole('button', { name: 'Expect this' }).click()
    expect(await keys.inputValue()).toBe('cd'.repeat(32))
    await keys.fill('')
    expect(await page.getByLabel('Or measurements').inputValue()).toBe(`PCR0=${'ab'.repeat(48)}`)
    expect(await page.getByLabel('Accept any code').isChecked()).toBe(false)
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    await page.getByRole('button', { name: 'a link with these expectations' }).click()
    await expect
      .poll(() => page.evaluate('navigator.clipboard.readText()'))
      .toBe(`${site.url}/verify#measurements=PCR0%3D${'ab'.repeat(48)}`)
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

/** Opens every link of the chain. */
const OPEN_LINKS = "for (const one of document.querySelectorAll('.link details')) one.open = true"

/** Presses Tab until the field of this label has the focus. */
async function tabTo(page: Page, label: string): Promise<void> {
  const field = page.getByLabel(label)
  for (let presses = 0; presses < 40; presses++) {
    await page.keyboard.press('Tab')
    if (await field.evaluate(HAS_FOCUS)) return
  }
  throw new Error(`expected Tab to come to ${label}`)
}

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
  const rootFile = async () => {
    const path = join(folder, 'root.der')
    await writeFile(path, standardChain.cabundle[0] as Uint8Array)
    return path
  }
  const expected = async (): Promise<Demands> => ({
    roots: [await rootFile()],
    pcrs: Object.fromEntries(
      [0, 1, 2].map((at) => [at, Buffer.from(PCR_VALUES.get(at) as Uint8Array).toString('hex')]),
    ),
    configurations: [encodeHex(digestOf(BOOT_CONFIGURATION))],
  })

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
    const { page, faults } = await openPage(`${site.url}/verify`)
    const driver = await driveVerifyPage(page)
    await driver.expect(await expected(), fileOf)
    const good = await driver.check(
      jsonFile(built(HOSTILE), `${HOSTILE.replaceAll('/', '_')}.json`),
    )
    expect(good.verdict).toBe('verified')
    await page.evaluate(OPEN_LINKS)
    expect(await page.locator('.told').textContent()).toContain('\\u{202e}gnp.exe')
    await expectText(page)

    const hostile: readonly unknown[] = [
      HOSTILE,
      { [HOSTILE]: HOSTILE },
      { format: HOSTILE },
      { format: 'affidavit-evidence', version: HOSTILE },
      { request: HOSTILE, response: HOSTILE, hash: HOSTILE, receipt: HOSTILE, log: HOSTILE },
      {
        completions: [
          { request: {}, hash: HOSTILE },
          { request: {}, hash: HOSTILE },
        ],
      },
      { format: 'affidavit-release/v1', release: HOSTILE },
      {
        format: 'affidavit-proof',
        version: 1,
        request: {},
        answer: { choices: [], hash: HOSTILE },
      },
    ]
    for (const value of hostile) {
      expect((await driver.check(jsonFile(value))).verdict).not.toBe('verified')
      await expectText(page)
    }
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the page /verify shows where a bundle says it is from as text, not checked, and asks no one there', async () => {
    const { page, faults } = await openPage(`${site.url}/verify`)
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    const driver = await driveVerifyPage(page)
    const source = {
      gateway: 'https://gateway.example',
      operator: '<a href="javascript:hacked=1">Example</a>',
      releases: 'https://gateway.example/releases.json',
    }
    const named = jsonFile({ ...built('hello'), source })
    const text = () => page.locator('main').textContent()
    // Read once: the page does not read a file that was written again.
    const demanded = await expected()
    await driver.expect({ roots: demanded.roots ?? [] }, fileOf)
    expect((await driver.check(named)).verdict).toBe('consistent')
    expect(await text()).toContain(
      `This bundle says it is from https://gateway.example (“${source.operator.replaceAll('"', '\\u{22}')}”; releases at ${source.releases}): a hint, not checked. The bundle names https://gateway.example`,
    )
    await driver.expect(demanded, fileOf)
    expect((await driver.check(named)).verdict).toBe('verified')
    expect(await text()).toContain(': a hint, not checked.')
    expect(await text()).not.toContain('The bundle names')
    expect(
      await page.locator('main a[href*="gateway.example"], main a[href^="javascript"]').count(),
    ).toBe(0)
    expect(asked.filter((url) => url.includes('gateway.example'))).toEqual([])
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('text of strangers may be megabytes: the page stays quick, and shows a bounded part', async () => {
    const { page, faults } = await openPage(`${site.url}/verify`)
    const driver = await driveVerifyPage(page)
    await driver.expect(await expected(), fileOf)
    // The longest time between two tasks of the page, while it checks.
    await page.evaluate(`
      globalThis.worst = 0
      let last = performance.now()
      setInterval(() => {
        const now = performance.now()
        globalThis.worst = Math.max(globalThis.worst, now - last)
        last = now
      }, 10)`)
    const file = join(folder, 'large.json')
    await writeFile(file, JSON.stringify(built('<b>x\n</b>\u202e'.repeat(500_000))))
    const large = await driver.check(file)
    expect(large.verdict).toBe('verified')
    expect(await page.evaluate("document.querySelector('main').innerText.length")).toBeLessThan(
      20_000,
    )
    expect(await page.evaluate('globalThis.worst')).toBeLessThan(1_000)
    await driver.expect({}, fileOf)
    const many = { completions: Array(5_000).fill({ request: {}, hash: HOSTILE }) }
    expect((await driver.check(jsonFile(many))).verdict).toBe('invalid')
    expect(await page.locator('[data-link]').count()).toBeLessThan(400)
    await expectText(page)
    expect(faults).toEqual([])
    await page.context().close()
  })

  it.each(['light', 'dark'] as const)(
    'text of strangers makes no barrier in any report, %s',
    async (colorScheme) => {
      const { page } = await openPage(`${site.url}/verify`, {
        colorScheme,
        viewport: { width: 390, height: 800 },
      })
      const driver = await driveVerifyPage(page)
      await driver.expect(await expected(), fileOf)
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
    },
  )
})
