import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

/** Markup, a script, and a character that reverses the direction of text. */
const HOSTILE = '<img src=x onerror="hacked=1"><script>hacked=1</script>\u202Egnp.exe'
const TASK = 'First read_file({"path":"a.txt"}), then say it.'
const DIGEST = 'SHA-256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad, 3 bytes'

type Answer = {
  readonly affidavit: { readonly hash: string }
  readonly output?: readonly Item[]
  readonly content?: readonly Item[]
}
type Item = { readonly type: string; readonly id: string; readonly call_id: string }

let service: SharedAffidavit

beforeAll(async () => {
  service = await useAffidavit()
})

async function post(path: string, body: object): Promise<Answer> {
  const reply = await fetch(`${service.url}/v1/verified${path}`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
      'anthropic-version': '2023-06-01',
    },
    body: JSON.stringify(body),
  })
  expect(reply.status).toBe(200)
  return (await reply.json()) as Answer
}

/** Runs a task of one tool call, and gives the hash of the call with the tool's answer. */
async function runResponses(): Promise<string> {
  const tools = [
    { type: 'function', name: 'read_file', strict: false, parameters: { type: 'object' } },
  ]
  const asked = {
    role: 'user',
    content: [
      { type: 'input_text', text: TASK },
      { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,YWJj' },
    ],
  }
  const first = await post('/responses', { model: 'demo/task', tools, input: [asked] })
  const call = first.output?.find(({ type }) => type === 'function_call')
  const output = { type: 'function_call_output', call_id: call?.call_id, output: HOSTILE }
  const input = [asked, ...(first.output ?? []), output]
  return (await post('/responses', { model: 'demo/task', tools, input })).affidavit.hash
}

async function runMessages(): Promise<string> {
  const source = { type: 'base64', media_type: 'image/png', data: 'YWJj' }
  const content = [
    { type: 'text', text: TASK },
    { type: 'image', source },
  ]
  const asked = {
    model: 'demo/task',
    max_tokens: 2000,
    thinking: { type: 'enabled', budget_tokens: 1024 },
    tools: [{ name: 'read_file', input_schema: { type: 'object' } }],
  }
  const messages: object[] = [{ role: 'user', content }]
  const first = await post('/anthropic/v1/messages', { ...asked, messages })
  const call = first.content?.find(({ type }) => type === 'tool_use')
  const result = { type: 'tool_result', tool_use_id: call?.id, content: HOSTILE }
  messages.push({ role: 'assistant', content: first.content }, { role: 'user', content: [result] })
  return (await post('/anthropic/v1/messages', { ...asked, messages })).affidavit.hash
}

/** Expects that the text of the tool stayed text, and that all items of the call are shown. */
async function expectItems(page: Page, { thinks }: { readonly thinks: boolean }): Promise<void> {
  const asked = page.getByRole('region', { name: 'Asked' })
  for (const text of [TASK, `image/png: ${DIGEST}`, 'read_file({"path":"a.txt"})'])
    await asked.getByText(text, { exact: true }).waitFor()
  await asked.getByText('tools: read_file').waitFor()
  await asked.getByText(`read_file: ${HOSTILE.replace('\u202E', '\\u{202e}')}`).waitFor()
  if (thinks) await asked.getByText('anthropic-version: 2023-06-01').waitFor()
  if (thinks) await asked.getByText('thinks', { exact: true }).first().waitFor()
  await page.getByRole('region', { name: 'Answered' }).getByText('says', { exact: true }).waitFor()
  expect(await page.evaluate('globalThis.hacked')).toBeUndefined()
  expect(await page.locator('main img, main script').count()).toBe(0)
  expect(await findBarriers(page)).toEqual([])
}

describe.runIf(BROWSER.isMet)(BROWSER.title('calls of other APIs in a browser'), () => {
  it.each([
    ['Responses', runResponses],
    ['Messages', runMessages],
  ] as const)(
    'the console and the page of a completion show the items of %s',
    async (label, run) => {
      const hash = await run()
      const thinks = label === 'Messages'
      const { page, faults } = await openPage(`${service.url}/console/history`)
      await page.getByLabel('API key').fill(service.apiKey)
      await page.getByRole('button', { name: 'Sign in' }).click()
      await page.getByLabel('API', { exact: true }).selectOption(label)
      await page.getByRole('button', { name: 'Search' }).click()
      const row = page.getByRole('row').filter({ hasText: hash.slice(0, 12) })
      await row.getByText(label, { exact: true }).waitFor()
      await expect
        .poll(() => page.locator('.calls tbody [data-label="API"]').allTextContents())
        .toSatisfy((labels: readonly string[]) => labels.every((text) => text === label))
      await row.getByRole('button', { name: /^Details of/ }).click()
      await expectItems(page, { thinks })
      const panel = page.getByRole('dialog', { name: /^Call/ })
      await panel.getByRole('button', { name: /^Erase/ }).waitFor()
      expect(faults).toEqual([])
      await page.context().close()

      const shown = await openPage(`${service.url}/c/${hash}`)
      await shown.page.getByText('Your policy: code').click()
      await shown.page.getByLabel('Trust these roots').setInputFiles(service.rootFile)
      await shown.page.getByRole('button', { name: 'Check by this' }).click()
      await shown.page.locator('[data-verdict=incomplete]').waitFor()
      await shown.page.getByLabel('API key').fill(service.apiKey)
      await shown.page.getByRole('button', { name: 'Show the content' }).click()
      await expectItems(shown.page, { thinks })
      await shown.page.locator('[data-verdict=incomplete]').waitFor()
      expect(shown.faults).toEqual([])
      await shown.page.context().close()
    },
  )
})
