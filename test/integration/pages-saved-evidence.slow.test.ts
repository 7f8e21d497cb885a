import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type EvidenceBundle,
  parseEvidenceBundle,
  redactBundle,
} from '#attestation/evidence/bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { readEvidencePage } from '#attestation/report/evidence-page.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { complete, fetchEvidence } from '../support/completions.ts'
import { driveVerifyPage } from '../support/drive-verify-page.ts'
import { runCli } from '../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const QUESTION = 'Which file may I hand over?'

let folder = ''
let service: SharedAffidavit
let hash = ''
/** From the gateway, with its block. */
let bundleText = ''
let bundle: EvidenceBundle

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-saved-evidence-'))
  service = await useAffidavit()
  hash = (await complete(service, `${QUESTION} </script><!-- \u2028`)).hash
  bundleText = await fetchEvidence(service, hash)
  bundle = parseEvidenceBundle(parseExactJson(Buffer.from(bundleText)))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const cli = (...words: readonly string[]) =>
  runCli(words, {
    variables: { AFFIDAVIT_URL: service.url, AFFIDAVIT_API_KEY: service.apiKey },
  })
const fileOf = (text: string, name = 'bundle.json') => ({ name, bytes: Buffer.from(text) })

/** Saves the evidence that a page shows, as a reader does. */
async function save(page: Page): Promise<{ readonly name: string; readonly text: string }> {
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'Save as one HTML file' }).click(),
  ])
  const path = join(folder, `download-${Math.random()}.html`)
  await download.saveAs(path)
  return { name: download.suggestedFilename(), text: await readFile(path, 'utf8') }
}

/** Opens a file from the disk, without a network. */
async function openSaved(text: string) {
  const path = join(folder, `opened-${Math.random()}.html`)
  await writeFile(path, text)
  return { path, ...(await openPage(String(pathToFileURL(path)), { offline: true })) }
}

/** The evidence in a page; `.` would end at a line separator. */
const LINE = /<script[^>]* id="evidence">[^\n]*\n/

/** Compares texts; an assertion would print a difference of hundreds of kilobytes. */
const isSame = (one: string, other: string) => one === other

describe.runIf(BROWSER.isMet)(BROWSER.title('evidence in one HTML file'), () => {
  it('evidence is the same file from /verify, from the command line and from the file itself, and from the public page without its texts', async () => {
    const { page, faults } = await openPage(`${service.url}/verify`)
    const driver = await driveVerifyPage(page)
    await driver.check(fileOf(bundleText))
    const saved = await save(page)
    expect(saved.name).toBe(`affidavit-${hash.slice(0, 16)}.html`)
    expect(await page.locator('.save-evidence [role=status]').textContent()).toBe(
      'Saved. Each reader of the file can read the question and the answer.',
    )
    expect(faults).toEqual([])
    await page.context().close()

    const { stdout, code } = await cli('evidence', hash, '--html')
    expect(code).toBe(0)
    expect(isSame(saved.text, stdout)).toBe(true)

    const opened = await openSaved(saved.text)
    await opened.page.locator('[data-round="1"]').waitFor()
    expect(isSame((await save(opened.page)).text, saved.text)).toBe(true)
    await opened.page.context().close()

    const completion = await openPage(`${service.url}/c/${hash}`)
    const { text } = await save(completion.page)
    const publicly = await runCli(['evidence', hash, '--html', '--url', service.url])
    expect(isSame(text, publicly.stdout)).toBe(true)
    expect(text.includes(QUESTION)).toBe(false)
    await completion.page.context().close()
  })

  it('evidence in a file checks itself without a network, and again by what its reader brings', async () => {
    const { stdout } = await cli('evidence', hash, '--html')
    const { page, faults, strangers } = await openSaved(stdout)
    const verdict = page.locator('[data-verdict]')
    await page.locator('[data-round="1"]').waitFor()
    expect(await verdict.getAttribute('data-verdict')).toBe('not_accepted')
    for (const panel of await page.locator('.panel > summary').all()) await panel.click()
    await page
      .getByLabel('Policy (policy.json)')
      .setInputFiles(join(service.dataFolder, 'policy.json'))
    await expect.poll(() => page.getByLabel('Or measurements').inputValue()).toContain('PCR0')
    await page.getByRole('button', { name: 'Check again' }).click()
    await page.locator('[data-round="2"]').waitFor()
    expect(await verdict.getAttribute('data-verdict')).toBe('verified')
    expect(await page.locator('.result').textContent()).toContain(QUESTION)
    const named = JSON.parse((await cli('verifier', '--json')).stdout)
    const own = await page.locator('.this-file').textContent()
    expect(own).toContain(named.verifier_sha256)
    expect(own).toContain(named.commit ?? 'commit not known')
    expect(await findBarriers(page)).toEqual([])
    expect([faults, strangers]).toEqual([[], []])

    // The saved file does not hold what the reader gave.
    expect(isSame((await save(page)).text, stdout)).toBe(true)
    await page.context().close()
  })

  it('evidence without the question stays without it in the file, also when the reader gave the question', async () => {
    const { page } = await openPage(`${service.url}/verify`)
    const driver = await driveVerifyPage(page)
    const request = join(folder, 'request.json')
    if (!('request' in bundle.record)) throw new Error('expected a bundle with its request')
    await writeFile(request, JSON.stringify(bundle.record.request))
    await page.getByLabel('Request', { exact: true }).setInputFiles(request)
    const redacted = redactBundle(bundle, { request: true, response: true })
    await driver.check(fileOf(JSON.stringify(redacted)))
    expect(await page.locator('[data-check="request given"]').count()).toBe(1)
    const { text } = await save(page)
    expect(text.includes(QUESTION)).toBe(false)
    expect(await page.locator('.save-evidence [role=status]').textContent()).toBe(
      'Saved. Neither question nor answer can be read in the file.',
    )
    await page.context().close()
  })

  it('the page /verify takes such a file, and refuses one with two blocks', async () => {
    const { stdout } = await cli('evidence', hash, '--html')
    const { page, faults } = await openPage(`${service.url}/verify`)
    const driver = await driveVerifyPage(page)
    const ofPage = await driver.check(fileOf(stdout, 'evidence.html'))
    expect(ofPage).toEqual(await driver.check(fileOf(bundleText)))
    const twice = stdout.replace(LINE, (one) => one + one)
    const refused = await driver.check(fileOf(twice, 'evidence.html'))
    expect(refused.sentence).toContain('got more')
    expect(refused.verdict).toBe('refused')
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('a file that was changed says so when it is opened, and runs no other script', async () => {
    const { stdout } = await cli('evidence', hash, '--html')
    const renamed = await openSaved(
      stdout.replace(/(?<="verifier_sha256":")[0-9a-f]{8}/, '00000000'),
    )
    await renamed.page.locator('[data-round="1"]').waitFor()
    expect(await renamed.page.locator('.this-file').textContent()).toContain('was changed')
    await renamed.page.context().close()

    // The policy of the page lets no other script run.
    const forged = await openSaved(
      stdout.replace('<body>', '<body><script>document.title = "forged"</script>'),
    )
    await forged.page.locator('[data-round="1"]').waitFor()
    expect(await forged.page.title()).toBe('Verify · Affidavit, saved')
    expect(forged.faults.join()).toContain('Content Security Policy')
    await forged.page.context().close()
  })

  it('a print has the verdict and every check of each link, and nothing to press', async () => {
    const { stdout } = await cli('evidence', hash, '--html')
    const { page } = await openSaved(stdout)
    await page.locator('[data-round="1"]').waitFor()
    expect(await page.locator('.print-only').isVisible()).toBe(false)
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' })
    await page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(await page.locator('.print-only').textContent()).toContain('Paper proves nothing')
    expect(await page.locator('[data-verdict]').isVisible()).toBe(true)
    for (const hidden of ['button', 'input', 'select', 'textarea'])
      expect(await page.locator(hidden).filter({ visible: true }).count()).toBe(0)
    const checks = page.locator('[data-check]')
    expect(await checks.filter({ visible: true }).count()).toBe(await checks.count())
    expect(
      await page.evaluate(
        'getComputedStyle(document.documentElement).backgroundColor + getComputedStyle(document.body).color',
      ),
    ).toBe('rgb(255, 255, 255)rgb(0, 0, 0)')
    await page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(await checks.filter({ visible: true }).count()).toBeLessThan(await checks.count())
    const pdf = await page.pdf({ format: 'A4' })
    expect(pdf.subarray(0, 5).toString()).toBe('%PDF-')
    await page.context().close()
  })

  it('the gateway names the digest of the page that it gives', async () => {
    const page = Buffer.from(await (await fetch(`${service.url}/verify/copy`)).arrayBuffer())
    expect(page.length).toBeLessThan(528_000)
    const named = (await (await fetch(`${service.url}/verify/digest`)).json()) as {
      readonly verifier_sha256: string
    }
    expect(named).toEqual(JSON.parse((await cli('verifier', '--json')).stdout))
    expect(readEvidencePage(page)).toMatchObject({
      evidence: null,
      verifierSha256: named.verifier_sha256,
    })
  })
})
