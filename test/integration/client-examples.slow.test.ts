import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { build } from 'esbuild'
import { beforeAll, describe, expect, it } from 'vitest'
import { startAffidavit } from '../support/affidavit.ts'
import { findChromium, withSite } from '../support/attestation-browser/chromium.ts'
import { BROWSER } from '../support/browser.ts'
import { damage, reframing } from '../support/gateway-attacks/attack-case.ts'
import { startHostileGateway } from '../support/hostile-gateway.ts'
import { runProgram } from '../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const EXAMPLES = join(import.meta.dirname, '../../client/examples')
const executablePath = findChromium()

let service: SharedAffidavit
beforeAll(async () => {
  service = await useAffidavit()
})

describe.each(['openai', 'langchain', 'ai-sdk'])('client/examples/%s.ts', (name) => {
  const run = (url: string, prompt: string) =>
    runProgram(join(EXAMPLES, `${name}.ts`), [url, service.apiKey, service.policyFile, prompt])

  it('the example prints a checked answer and its checks', async () => {
    const { code, stdout, stderr } = await run(service.url, `the example ${name}`)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    const [answer, verdict, ...checks] = stdout.trim().split('\n')
    expect(verdict).toMatch(/^INCOMPLETE: nothing failed, but this was not checked: .*anchor/)
    expect(answer).toBe(`[demonstration] You said: the example ${name}`)
    expect(checks.length).toBeGreaterThan(10)
    expect(checks.every((line) => /^(passed|not checked) /.test(line))).toBe(true)
    for (const check of ['signature', 'receipt in log', 'notary', 'request hash'])
      expect(stdout).toMatch(new RegExp(`^passed +${check} `, 'm'))
  })

  it('the example fails for an answer that was altered, and shows no checks that passed', async () => {
    const hostile = await startHostileGateway(service.url)
    hostile.set(reframing((frames) => frames.with(-1, damage(frames.at(-1) ?? new Uint8Array()))))
    const { code, stdout, stderr } = await run(hostile.url, `the example ${name}, altered`)
    expect(hostile.counts()).toEqual({ met: 1, altered: 1 })
    await hostile.stop()
    expect(code).toBe(1)
    expect(stdout).not.toContain('passed')
    expect(stderr).toContain('not_encrypted')
  })
})

it('the first example has at most fifteen lines', async () => {
  const text = await readFile(join(EXAMPLES, 'openai.ts'), 'utf8')
  expect(text.split('\n').filter((line) => line !== '').length).toBeLessThanOrEqual(15)
})

describe('client/examples/browser', () => {
  /** For browsers, without polyfills: an import of a Node module cannot be resolved. */
  async function bundle(): Promise<string> {
    const { outputFiles, warnings } = await build({
      entryPoints: [join(EXAMPLES, 'browser/page.ts')],
      bundle: true,
      write: false,
      platform: 'browser',
      format: 'esm',
      target: 'es2022',
      logLevel: 'silent',
    })
    expect(warnings).toEqual([])
    return outputFiles[0]?.text ?? ''
  }

  it('the browser example bundles without any polyfill', async () => {
    expect(await bundle()).not.toMatch(/\beval\(|new Function/)
  })

  it.runIf(BROWSER.isMet)(
    BROWSER.title('the browser example shows the answer, its checks, and what it does not trust'),
    { timeout: 120_000 },
    async () => {
      const open = await startAffidavit({ logLevel: 'warn', variables: { CORS_ORIGINS: '*' } })
      try {
        const site = {
          executablePath: executablePath ?? '',
          page: await readFile(join(EXAMPLES, 'browser/page.html'), 'utf8'),
          script: { path: '/page.js', text: await bundle() },
          policy: `default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; connect-src ${open.url}`,
        }
        await withSite(site, async (page) => {
          const ask = async (expected: string, prompt: string) => {
            await page.fill('[name=url]', open.url)
            await page.fill('[name=apiKey]', open.apiKey)
            await page.fill('[name=policy]', expected)
            await page.fill('[name=prompt]', prompt)
            await page.click('button')
            await page.waitForSelector('[data-verdict=checked], [data-verdict=refused]')
            return {
              answer: await page.textContent('#answer'),
              verdict: await page.textContent('#verdict'),
              checks: await page.$$eval('#checks tr', (rows) =>
                rows.map((row) => row.textContent ?? ''),
              ),
            }
          }
          const good = await ask(await readFile(open.policyFile, 'utf8'), 'from a browser')
          expect(good).toMatchObject({
            answer: '[demonstration] You said: from a browser',
            verdict: 'Every check passed.',
          })
          expect(good.checks.length).toBeGreaterThan(10)
          const other = JSON.parse(await readFile(open.policyFile, 'utf8'))
          other.enclaves.measurements[0].PCR0 = `${'00'.repeat(47)}01`
          const bad = await ask(JSON.stringify(other), 'from a browser')
          expect(bad).toMatchObject({ answer: '', checks: [] })
          expect(bad.verdict).toMatch(/^Do not trust this: no_notary: .*unexpected_code/)
        })
      } finally {
        await open.stop()
      }
    },
  )
})
