import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { complete } from '../support/completions.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let folder = ''
let hash = ''
let notary = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-policy-'))
  service = await useAffidavit()
  hash = (await complete(service, 'hello')).hash
  const { notaries } = (await (await fetch(`${service.url}/v1/notaries`)).json()) as {
    readonly notaries: readonly { readonly notary: string }[]
  }
  notary = notaries[0]?.notary ?? ''
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const DEVELOPMENT = '[data-policy=development]'
const OWN = '[data-policy=own]'
const BANNER =
  'Development gateway: this page uses the policy of this gateway. It proves nothing to other people.'
/** Under a verdict. The verdict itself says that development proves nothing. */
const BANNER_UNDER_VERDICT = 'Checked by the policy that this development gateway gives for itself.'

/** On the page of a completion: whether the code of its enclave is the expected code. */
const codeOf = (page: Page) =>
  page.locator('[data-check="measurements"]').getAttribute('data-outcome')

/** Opens a page in the same tab, as a link does. */
const go = (page: Page, path: string) => page.goto(service.url + path)

async function signIn(page: Page): Promise<void> {
  await page.getByLabel('API key').fill(service.apiKey)
  await page.getByRole('button', { name: 'Sign in' }).click()
}

/** A policy in this gateway's form that its enclaves do not meet. */
async function otherPolicy(): Promise<Buffer> {
  const { enclaves } = JSON.parse(await readFile(service.policyFile, 'utf8'))
  const other = { ...enclaves, measurements: [{ PCR0: '00'.repeat(48) }] }
  return Buffer.from(JSON.stringify({ enclaves: other }))
}

async function fillFrom(page: Page, buffer: Buffer): Promise<void> {
  await page.getByText('Your policy: code').click()
  const file = { name: 'policy.json', mimeType: 'application/json', buffer }
  await page.getByLabel('Policy (policy.json)').setInputFiles(file)
  await page.locator(OWN).waitFor()
}

/** The tab stores its policy after reading the files. */
const untilKept = (page: Page, text: string) =>
  expect.poll(() => page.evaluate('JSON.stringify(sessionStorage)')).toContain(text)

describe.runIf(BROWSER.isMet)(BROWSER.title('a development gateway'), () => {
  it('a development gateway gives its own pages what its file says, and each says so in words', async () => {
    const reply = await fetch(`${service.url}/development/policy`)
    expect(await reply.json()).toEqual(JSON.parse(await readFile(service.policyFile, 'utf8')))
    const viewport = { width: 390, height: 844 }
    const options = { colorScheme: 'dark', viewport } as const
    const { page, faults, strangers } = await openPage(`${service.url}/c/${hash}`, options)
    await expect.poll(() => codeOf(page)).toBe('passed')
    for (const path of [`/c/${hash}`, '/verify', `/log/${notary}`]) {
      await go(page, path)
      const isJudged = path.startsWith('/c/')
      const banner = page.locator(DEVELOPMENT).getByText(isJudged ? BANNER_UNDER_VERDICT : BANNER)
      await banner.waitFor()
      expect(await banner.isVisible()).toBe(true)
      const warnings = page.getByText('proves nothing to other people')
      expect([path, await warnings.count()]).toEqual([path, 1])
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390)
    }
    expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
    await page.context().close()
  })

  it('a reader who does not use what the gateway says is asked on no page, may change his mind, and sees what can be checked without it', async () => {
    const { page } = await openPage(`${service.url}/verify`)
    await page.getByRole('button', { name: 'Do not use it' }).click()
    await untilKept(page, 'affidavit-policy')
    await go(page, `/c/${hash}`)
    await expect.poll(() => codeOf(page)).toBe('not checked')
    expect(await page.locator(DEVELOPMENT).count()).toBe(0)
    await page.getByRole('button', { name: 'Use it' }).click()
    await expect.poll(() => codeOf(page)).toBe('passed')
    await page.route('**/development/policy', (route) => route.abort())
    await page.reload()
    await expect.poll(() => codeOf(page)).toBe('not checked')
    expect(await page.locator('[data-policy]').count()).toBe(0)
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the policy of the reader'), () => {
  it("the reader's policy takes the place of the gateway's on every page of the tab, until it is cleared", async () => {
    const { page, faults } = await openPage(`${service.url}/verify`)
    await fillFrom(page, await otherPolicy())
    expect(await page.locator(DEVELOPMENT).count()).toBe(0)
    await untilKept(page, 'PCR0=0000')

    await go(page, `/c/${hash}`)
    const notice = page.locator(OWN)
    await notice.getByText('Your policy holds on all pages of this tab').waitFor()
    expect(await notice.textContent()).toContain(
      '1 set of measurements, 1 boot configuration, own roots. You gave it on Verify.',
    )
    await expect.poll(() => codeOf(page)).toBe('failed')
    expect(await findBarriers(page)).toEqual([])

    await go(page, `/log/${notary}`)
    const enclave = page.locator('section[aria-labelledby=enclave]')
    await enclave.locator('[data-check="measurements"][data-outcome=failed]').waitFor()
    expect(await enclave.locator('[data-outcome=passed] .state.good').count()).toBe(0)

    await go(page, '/console')
    await signIn(page)
    await page.getByText('has another enclave than you expect').waitFor()
    await page.getByRole('button', { name: 'Clear your policy' }).click()
    await page.getByText('One enclave is as this development gateway says.').waitFor()
    await expect
      .poll(() => page.evaluate('JSON.stringify(sessionStorage)'))
      .not.toContain('PCR0=0000')
    await go(page, `/c/${hash}`)
    await expect.poll(() => codeOf(page)).toBe('passed')
    expect(faults).toEqual([])
    await page.context().close()
  })

  it("the reader's policy survives a navigation with its files, also binary files", async () => {
    const { page } = await openPage(`${service.url}/verify`)
    await page.getByText('Your policy: code').click()
    await page.getByLabel('Certificate revocation lists').setInputFiles({
      name: 'list.crl',
      mimeType: 'application/octet-stream',
      buffer: Buffer.from([0x30, 0xff, 0x00]),
    })
    await untilKept(page, 'MP8A')
    await go(page, '/verify')
    await page.getByText('Your policy: code').click()
    await page.getByText('list.crl, 3 bytes').waitFor()
    await page.context().close()
  })

  it('a policy that is too large for the tab ends with its page, and an older one does not come back', async () => {
    const { page } = await openPage(`${service.url}/verify`)
    await fillFrom(page, await otherPolicy())
    await untilKept(page, 'PCR0=0000')
    await page.getByLabel('Signed releases').setInputFiles({
      name: 'large.json',
      mimeType: 'application/json',
      buffer: Buffer.alloc(7 * 1024 * 1024, 0x61),
    })
    await page.locator(OWN).getByText('It is too large to be kept').waitFor()
    await go(page, `/c/${hash}`)
    await page.locator(DEVELOPMENT).waitFor()
    await page.context().close()
  })

  it('a policy ends with its page when a file changed on the disk, and a weaker one does not come back', async () => {
    const { page } = await openPage(`${service.url}/verify`)
    const file = join(folder, 'configuration.json')
    await writeFile(file, '{}')
    await page.getByText('Your policy: code').click()
    await page.getByLabel('Accept any code in the enclave').check()
    await page.getByLabel('Or the configuration itself').setInputFiles(file)
    await untilKept(page, 'configuration.json')
    await writeFile(file, '{"changed": true}')
    await page.getByLabel('Accept any code in the enclave').uncheck()
    await page.getByLabel('Or measurements').fill(`PCR0=${'ab'.repeat(48)}`)
    await page.locator(OWN).getByText('a file cannot be read').waitFor()
    await go(page, '/verify')
    await page.locator(DEVELOPMENT).waitFor()
    await page.getByText('Your policy: code').click()
    expect(await page.getByLabel('Accept any code in the enclave').isChecked()).toBe(false)
    await page.context().close()
  })

  it('a policy goes along into a tab that the playground opens, and the key does not', async () => {
    const { page } = await openPage(`${service.url}/console`)
    await page.getByLabel('API key').fill(service.apiKey)
    await page.getByLabel(/Keep it when this page/).check()
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByLabel('Drop files here').setInputFiles(service.policyFile)
    await page.getByText('One enclave is as you expect').waitFor()
    await page.getByRole('textbox', { name: 'Message' }).fill('hello')
    await page.getByRole('button', { name: 'Send' }).click()
    // The reader trusts a root that is not AWS's: nothing that rests on this root is green.
    const turn = page.getByRole('article', { name: 'Question 1' })
    await turn.getByText('Checked, development only').waitFor()
    expect(await page.locator('.turn .state.good, .who .state.good').count()).toBe(0)
    const opening = page.context().waitForEvent('page')
    await page.getByRole('link', { name: 'Public evidence' }).click()
    const opened = await opening
    await opened.locator(OWN).getByText('You gave it on the playground.').waitFor()
    await expect.poll(() => codeOf(opened)).toBe('passed')
    expect(await opened.evaluate('[opener, JSON.stringify(sessionStorage)]')).toEqual([
      null,
      expect.not.stringContaining(service.apiKey),
    ])
    expect(await page.evaluate('JSON.stringify(sessionStorage)')).toContain(service.apiKey)
    await page.context().close()
  })

  it('a saved copy asks no gateway, and takes nothing from the storage of its place', async () => {
    const copy = join(folder, 'copy.html')
    await writeFile(copy, await (await fetch(`${service.url}/verify/copy`)).text())
    const { page, strangers } = await openPage(String(pathToFileURL(copy)))
    await fillFrom(page, await otherPolicy())
    expect(await page.evaluate('JSON.stringify(sessionStorage)')).toBe('{}')
    const { page: served } = await openPage(`${service.url}/verify`)
    await fillFrom(served, await otherPolicy())
    await untilKept(served, 'PCR0=0000')
    const kept = String(await served.evaluate('sessionStorage.getItem("affidavit-policy")'))
    await page.evaluate(`sessionStorage.setItem("affidavit-policy", ${JSON.stringify(kept)})`)
    await page.reload()
    await page.getByText('This is a saved page').waitFor()
    expect(await page.locator('[data-policy]').count()).toBe(0)
    expect(strangers).toEqual([])
    await Promise.all([page.context().close(), served.context().close()])
  })
})
