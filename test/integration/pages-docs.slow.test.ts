import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { expectInView, SCREENS } from '../support/in-view.ts'
import { runIn } from '../support/machine-node.ts'
import { needNo, needProgram } from '../support/needs.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const ROOT = join(import.meta.dirname, '../..')
const CURL = needProgram('curl')
const OPENAI_FOR_PYTHON = needNo(hasPythonOpenai() ? null : 'the package openai for python3')

let service: SharedAffidavit
/** The folder of a caller: `policy.json`, the packages for the samples, and the command line. */
let folder = ''

beforeAll(async () => {
  service = await useAffidavit()
  folder = mkdtempSync(join(tmpdir(), 'affidavit-samples-'))
  copyFileSync(service.policyFile, join(folder, 'policy.json'))
  // The sources replace the installed package: test/packages installs that.
  const client = join(folder, 'client')
  const bin = join(folder, 'node_modules/.bin')
  mkdirSync(client)
  mkdirSync(bin, { recursive: true })
  writeFileSync(join(client, 'package.json'), '{"type":"module","exports":"./index.ts"}')
  writeFileSync(join(client, 'index.ts'), `export * from '${ROOT}/client/index.ts'\n`)
  symlinkSync(client, join(folder, 'node_modules/affidavit'))
  symlinkSync(join(ROOT, 'node_modules/openai'), join(folder, 'node_modules/openai'))
  writeFileSync(
    join(bin, 'affidavit'),
    `#!/bin/sh\nexec '${process.execPath}' '${ROOT}/src/cli/main.ts' "$@"\n`,
  )
  chmodSync(join(bin, 'affidavit'), 0o755)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

function hasPythonOpenai(): boolean {
  try {
    execFileSync('python3', ['-c', 'import openai'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

/** Runs a command of the page in the caller's folder, with the caller's key. */
const runShell = (command: string) =>
  runIn(
    {
      folder,
      path: [join(process.execPath, '..'), process.env.PATH ?? ''].join(delimiter),
      variables: { AFFIDAVIT_API_KEY: service.apiKey },
    },
    'sh',
    '-c',
    command,
  )

const groupPaths = (page: Page) =>
  page
    .locator('.contents > details > ul:last-of-type > li > a')
    .evaluateAll((links) => links.map((link) => link.getAttribute('href') ?? ''))

const readDocument = async () =>
  (await (await fetch(`${service.url}/openapi.json`)).json()) as {
    readonly paths: Readonly<
      Record<string, Readonly<Record<string, { readonly operationId: string }>>>
    >
  }

describe.runIf(BROWSER.isMet)(BROWSER.title('the first page of the API'), () => {
  const openStart = async (options?: Parameters<typeof openPage>[1]) => {
    const opened = await openPage(`${service.url}/docs`, options)
    const { page } = opened
    await page.getByText('demo/echo').first().waitFor()
    await page.getByRole('link', { name: 'Images' }).first().waitFor({ state: 'attached' })
    return opened
  }

  it.each(SCREENS)(
    'the first page of the API shows the verified call with its sample open, at $width × $height',
    async (viewport) => {
      const { page, faults } = await openStart({ viewport })
      const parts = {
        heading: page.getByRole('heading', { level: 1, name: 'The verified call' }),
        lead: page.locator('.lead'),
        curl: page.getByRole('tab', { name: 'curl' }),
        node: page.getByRole('tab', { name: 'Node' }),
        python: page.getByRole('tab', { name: 'Python' }),
        sample: page.locator('.code-block').first(),
        copy: page.getByRole('button', { name: 'Copy the verified call, for curl' }),
        check: page.getByRole('heading', { name: 'Check the answer' }),
      }
      await expectInView(page, parts)
      await page.getByRole('tab', { name: 'curl' }).focus()
      for (const [language, code] of [
        ['Node', 'affidavit.fetch'],
        ['Python', 'http://127.0.0.1:8787/v1'],
      ] as const) {
        await page.keyboard.press('ArrowRight')
        const sample = page.getByLabel(`the verified call, for ${language}`, { exact: true })
        expect(await sample.textContent()).toContain(code)
        expect(await findBarriers(page)).toEqual([])
      }
      expect(faults).toEqual([])
      await page.context().close()
    },
  )

  it('the first page of the API puts no model in a sample that could end its text', async () => {
    const { page } = await openPage(`${service.url}/verify`)
    await page.route('**/v1/verified/models', (route) =>
      route.fulfill({ json: { data: [{ id: `x'; touch y; '` }, { id: 'plain-1' }] } }),
    )
    await page.goto(`${service.url}/docs`)
    await page.getByText('"model":"plain-1"').first().waitFor()
    await page.context().close()
  })

  describe('each of its samples', () => {
    /** The text of the copy button. */
    const readSample = async (language: string) => {
      const { page } = await openStart()
      await page.getByRole('tab', { name: language }).click()
      const textOf = async (label: string) =>
        (await page.getByLabel(label, { exact: true }).textContent()) ?? ''
      const sample = {
        before: language === 'curl' ? '' : await textOf(`the command before it, for ${language}`),
        code: await textOf(`the verified call, for ${language}`),
        checkFile: await textOf('the command that checks a file'),
        checkHash: await textOf('the command that checks a hash'),
      }
      await page.context().close()
      return sample
    }

    it.runIf(CURL.isMet)(
      CURL.title('the sample for curl is answered with a proof that the command below checks'),
      async () => {
        const { code, checkHash } = await readSample('curl')
        const { stdout } = await runShell(code)
        const answer = JSON.parse(stdout)
        expect(answer.choices[0].message.content).toBe('[demonstration] You said: Hello')
        const check = checkHash.replace('HASH', answer.hash)
        await expect
          .poll(async () => (await runShell(check)).stdout, { timeout: 60_000, interval: 1_000 })
          .toMatch(/^VERIFIED/)
      },
    )

    it.runIf(CURL.isMet).each(['Responses', 'Messages'])(
      CURL.title('the call of %s is answered with a proof in its own member'),
      async (name) => {
        const { page } = await openStart()
        const sample = page.getByLabel(`the call of ${name}`, { exact: true })
        const code = (await sample.textContent()) ?? ''
        const command = page.getByLabel('the command that checks a hash', { exact: true })
        const checkHash = (await command.textContent()) ?? ''
        await page.context().close()
        const answer = JSON.parse((await runShell(code)).stdout)
        expect(JSON.stringify(answer)).toContain('[demonstration] You said: Hello')
        const check = checkHash.replace('HASH', answer.affidavit.hash)
        await expect
          .poll(async () => (await runShell(check)).stdout, { timeout: 60_000, interval: 1_000 })
          .toMatch(/^VERIFIED[\s\S]*\nsaid\n {2}says +\| \[demonstration\] You said: Hello\n/)
      },
    )

    it('the sample for Node prints a checked answer, and saves a proof that the command below checks', async () => {
      const { before, code, checkFile } = await readSample('Node')
      expect(before).toBe('npm install ./affidavit-*.tgz openai')
      writeFileSync(join(folder, 'ask.mjs'), code)
      const run = await runShell(`'${process.execPath}' ask.mjs`)
      expect(run).toMatchObject({ code: 0, stdout: '[demonstration] You said: Hello\n' })
      expect((await runShell(checkFile)).stdout).toMatch(/^VERIFIED/)
    })

    it.runIf(OPENAI_FOR_PYTHON.isMet)(
      OPENAI_FOR_PYTHON.title('the sample for Python gets a checked answer through the proxy'),
      async () => {
        const { before, code } = await readSample('Python')
        const { url, stop } = await startProxy(before)
        try {
          writeFileSync(join(folder, 'ask.py'), code.replace('http://127.0.0.1:8787/v1', url))
          const run = await runShell('python3 ask.py')
          expect(run).toMatchObject({ code: 0, stdout: '[demonstration] You said: Hello\n' })
        } finally {
          await stop()
        }
      },
    )
  })

  /**
   * Starts the proxy by the page's command, at a free port, and waits until it serves; gives its
   * address, and a function that ends it.
   */
  async function startProxy(command: string) {
    const run = `${command.replace(/^npx /, 'exec node_modules/.bin/')} --port 0`
    const child = spawn('sh', ['-c', run], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let said = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      said += text
    })
    const ended = once(child, 'exit')
    await expect.poll(() => said).toMatch(/^Checked answers at http/)
    return {
      url: said.match(/http[^,\s]+/)?.[0] ?? '',
      async stop() {
        child.kill('SIGTERM')
        await ended
      },
    }
  }
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the reference of the API'), () => {
  const open = async (fragment: string) => {
    const opened = await openPage(`${service.url}/docs${fragment}`)
    const section = opened.page.locator(`.operation#${fragment.split('#')[1]}`)
    await section.waitFor()
    return { ...opened, section }
  }

  it('the API reference has every operation, those of administrators last, without barriers or raw backticks, and fits a phone', async () => {
    const { page, faults } = await openPage(`${service.url}/docs`, { viewport: SCREENS[1] })
    await page.getByRole('link', { name: 'Images' }).first().waitFor({ state: 'attached' })
    const paths = await groupPaths(page)
    expect(paths[0]).toBe('/docs/verified-chat')
    expect(paths.at(-1)).toBe('/docs/administration')
    const shown: string[] = []
    for (const path of paths) {
      await page.goto(`${service.url}${path}`)
      const operations = page.locator('.operation')
      await operations.first().waitFor()
      shown.push(...(await operations.evaluateAll((all) => all.map(({ id }) => id))))
      // Pages of one kind: the first and the last are examined.
      if (path === paths[0] || path === paths.at(-1))
        expect(await findBarriers(page), path).toEqual([])
      // Errors, schemas and fields are built when they are opened; some contain others.
      for (let round = 0; round < 4; round++)
        await page.evaluate(
          "for (const one of document.querySelectorAll('details')) one.open = true",
        )
      expect(await page.evaluate(PROSE), path).not.toContain('`')
      expect(await page.evaluate('document.documentElement.scrollWidth'), path).toBeLessThanOrEqual(
        390,
      )
    }
    const { paths: documented } = await readDocument()
    const ids = Object.values(documented).flatMap((methods) =>
      Object.values(methods).map(({ operationId }) => operationId),
    )
    expect(shown.toSorted()).toEqual(ids.toSorted())
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the API reference finds operations by words and by old links, and says so where there is no such group', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    const found = page.locator('.contents .operations a')
    await page.getByLabel('Find an operation').fill('post embeddings')
    await expect.poll(() => found.count()).toBe(1)
    await found.click()
    await page.waitForURL('**/docs/embeddings#postV1Embeddings')
    await page.locator('#postV1Embeddings').getByText('encoding_format', { exact: true }).waitFor()
    // Fragments of old links lead to their operation too.
    await page.goto(`${service.url}/docs#getV1LogNotary`)
    await page.locator('.operation#getV1LogNotary').waitFor()
    expect(new URL(page.url()).pathname).toBe('/docs/logs')
    await page.goto(`${service.url}/docs/nothing`)
    await page.getByRole('heading', { level: 1, name: 'No such group' }).waitFor()
    await page.context().close()
  })

  it('the API reference makes a call with the key of the tab, streams its answer, and keeps the key to itself', async () => {
    const { page, section, faults } = await open('/verified-chat#postV1VerifiedChatCompletions')
    const urls: string[] = []
    page.on('request', (request) => urls.push(request.url()))
    await section.getByText('Fill it in, and try it').click()
    const body = section.getByLabel('Body', { exact: true })
    const call = { ...JSON.parse(await body.inputValue()), stream: true }
    await body.fill(JSON.stringify(call))
    expect(await section.getByRole('button', { name: 'Send POST' }).isDisabled()).toBe(true)
    await section.getByLabel('API key').fill(service.apiKey)
    await section.getByRole('button', { name: 'Send POST' }).click()
    await section.getByText('Status 200').waitFor()
    await section.getByText('data: [DONE]').waitFor()
    expect(await findBarriers(page)).toEqual([])
    expect(urls.join()).not.toContain(service.apiKey)
    expect(await page.content()).not.toContain(service.apiKey)
    expect(
      await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie])'),
    ).toBe('[{},{},""]')
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the API reference shows what the gateway refuses, as text', async () => {
    const { page, section } = await open('/logs#getV1LogNotary')
    const hostile = '<img src=x onerror=alert(1)>\u202e'
    const sample = section.getByLabel('GET /v1/log/{notary} in curl', { exact: true })
    expect(await sample.textContent()).toContain('/v1/log/{notary}')
    await section.getByText('Fill it in, and try it').click()
    await section.getByRole('textbox', { name: 'notary' }).fill(hostile)
    await section.getByRole('button', { name: 'Send GET' }).click()
    await section.getByText('Status 422').waitFor()
    await section.getByText('"detail"').waitFor()
    expect(await section.locator('img').count()).toBe(0)
    expect(await sample.textContent()).toContain(`/v1/log/${encodeURIComponent(hostile)}`)
    await page.context().close()
  })
})

/** The page's text without its code. */
const PROSE = `(() => {
  const copy = document.body.cloneNode(true)
  for (const code of copy.querySelectorAll('pre, code, textarea, script')) code.remove()
  return copy.textContent
})()`
