import { readFile } from 'node:fs/promises'
import type { Locator, Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { parseSavedProof } from '#attestation/saved-proof.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat, VERIFIED_PATH } from '../support/calls.ts'
import { createMeasuredNode, sendBody } from '../support/register-node.ts'
import { connectScriptedNode } from '../support/scripted-node.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

/** A stranger's text: markup, a script, a character that reverses the direction of text. */
const HOSTILE = '<img src=x onerror="hacked=1"><script>hacked=1</script>\u202Egnp.exe'
/** The form in which it must be shown. */
const HOSTILE_SHOWN = HOSTILE.replace('\u202E', '\\u{202e}')

let service: SharedAffidavit
let operator: { readonly url: string; readonly key: string }

beforeAll(async () => {
  service = await useAffidavit()
  operator = { url: service.url, key: service.apiKey }
})

/** A new key of the service's account. */
async function makeKey(scopes: readonly string[], name = 'a test'): Promise<string> {
  const reply = await sendBody(operator, 'POST', '/v1/dashboard/keys', { name, scopes })
  return ((await reply.json()) as { readonly key: string }).key
}

/** Opens a part of the console and signs in. */
async function signIn(key: string, part = '', options?: Parameters<typeof openPage>[1]) {
  const opened = await openPage(`${service.url}/console${part}`, options)
  await opened.page.getByLabel('API key').fill(key)
  await opened.page.getByRole('button', { name: 'Sign in' }).click()
  await opened.page.getByRole('navigation', { name: 'Parts of the console' }).waitFor()
  return opened
}

const partsOf = (page: Page) =>
  page.getByRole('navigation', { name: 'Parts of the console' }).getByRole('link').allTextContents()

/** Expects that a stranger's text stayed text. */
async function expectText(page: Page): Promise<void> {
  expect(await page.evaluate('globalThis.hacked')).toBeUndefined()
  expect(await page.locator('main img, main script').count()).toBe(0)
  expect(
    await page.evaluate("/[\\u202a-\\u202e]/.test(document.querySelector('main').innerText)"),
  ).toBe(false)
}

describe.runIf(BROWSER.isMet)(BROWSER.title('signing in'), () => {
  it('the console refuses an invalid key, and says what to do', async () => {
    const { page } = await openPage(`${service.url}/console`)
    const field = page.getByLabel('API key')
    for (const [key, words] of [
      [service.apiKey.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A')), 'copied the whole key'],
      ['two words', 'copy it again'],
    ] as const) {
      await field.fill(key)
      await page.getByRole('button', { name: 'Sign in' }).click()
      await page.getByRole('alert').filter({ hasText: words }).waitFor()
      await expect.poll(() => hasFocus(field)).toBe(true)
    }
    await page.context().close()
  })

  it('the console keeps the key in the tab, sends it to this origin alone, and forgets it', async () => {
    const { page, strangers } = await openPage(`${service.url}/console`)
    const urls: string[] = []
    const senders = new Set<string>()
    page.on('request', (request) => {
      urls.push(request.url())
      if (request.headers().authorization !== undefined) senders.add(new URL(request.url()).origin)
    })
    await page.getByLabel('API key').fill(service.apiKey)
    await page.getByRole('button', { name: 'Sign in' }).click()
    for (const part of ['Keys', 'Limits and usage', 'Nodes', 'Playground'])
      await page.getByRole('link', { name: part, exact: true }).click()
    expect(await storageOf(page)).not.toContain('afd_')
    expect([...senders]).toEqual([service.url])
    expect(urls.join(' ')).not.toContain('afd_')
    expect(page.url()).not.toContain('afd_')
    await page.reload()
    await page.getByLabel('API key').waitFor()

    await page.getByLabel('API key').fill(service.apiKey)
    await page.getByLabel('Keep it').check()
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'Playground' }).waitFor()
    expect(await page.evaluate('Object.values(sessionStorage)')).toEqual([service.apiKey])
    expect(await page.evaluate('[localStorage.length, document.cookie]')).toEqual([0, ''])
    await page.reload()
    await page.getByRole('heading', { name: 'Playground' }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('API key').waitFor()
    expect(await storageOf(page)).not.toContain('afd_')
    expect(strangers).toEqual([])
    await page.context().close()
  })

  it('the console shows a key what it is for, and nothing else', async () => {
    for (const [scopes, parts] of [
      [['nodes'], ['Nodes', 'Keys', 'Limits and usage']],
      [['history:all'], ['Keys', 'Limits and usage']],
    ] as const) {
      const { page } = await signIn(await makeKey(scopes), '/playground')
      expect(await partsOf(page)).toEqual(parts)
      await page.getByText('This part needs a key with the scope inference').waitFor()
      await page.context().close()
    }
  })

  it('the console signs out a key that was revoked elsewhere', async () => {
    const { page } = await signIn(await makeKey(['nodes']), '/nodes')
    const { keys } = (await (await getPath(operator, '/v1/dashboard/keys')).json()) as {
      readonly keys: readonly { readonly id: string }[]
    }
    await fetch(`${service.url}/v1/dashboard/keys/${keys.at(-1)?.id}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${operator.key}` },
    })
    await page.getByText('This key is no longer valid').waitFor()
    expect(await page.locator('table').count()).toBe(0)
    await page.context().close()
  })

  it('the console works by keys alone, and puts the focus where the reader went', async () => {
    const { page } = await openPage(`${service.url}/console`)
    await tabTo(page, page.getByLabel('API key'))
    await page.keyboard.type(service.apiKey)
    await page.keyboard.press('Enter')
    await tabTo(page, page.getByRole('link', { name: 'Keys', exact: true }))
    await page.keyboard.press('Enter')
    const heading = page.getByRole('heading', { name: 'Keys', exact: true })
    await expect.poll(() => hasFocus(heading)).toBe(true)
    await tabTo(page, page.getByText('Make a key', { exact: true }))
    await page.keyboard.press('Enter')
    await tabTo(page, page.getByLabel('Name'))
    await page.keyboard.type('made by keys')
    await page.keyboard.press('Enter')
    await page.getByText('It is shown only once').waitFor()
    const id = (await page.locator('code.secret').textContent())?.split('_')[1] ?? ''
    await tabTo(page, page.getByRole('button', { name: `Revoke key ${id}` }))
    await page.keyboard.press('Enter')
    const dialog = page.getByRole('dialog', { name: 'Revoke this key?' })
    await dialog.waitFor()
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'hidden' })
    const revoke = page.getByRole('button', { name: `Revoke key ${id}` })
    await expect.poll(() => hasFocus(revoke)).toBe(true)
    await page.keyboard.press('Enter')
    await dialog.waitFor()
    await tabTo(page, dialog.getByRole('button', { name: 'Revoke' }))
    await page.keyboard.press('Enter')
    await page.getByRole('row', { name: id }).getByText('revoked').waitFor()
    await page.goBack()
    await expect.poll(() => hasFocus(page.getByRole('heading', { level: 1 }))).toBe(true)
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('a dialog that asks before it acts'), () => {
  it('a dialog that is opened again before its close event came has its words', async () => {
    const { page } = await signIn(service.apiKey, '/keys')
    await page
      .getByRole('button', { name: /^Revoke key/ })
      .first()
      .waitFor()
    await page.evaluate(OPEN_CLOSE_OPEN)
    const dialog = page.getByRole('dialog', { name: 'Revoke this key?' })
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await dialog.waitFor({ state: 'hidden' })
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('every part'), () => {
  it.each([
    ['light', 1280],
    ['dark', 1280],
    ['light', 360],
  ] as const)(
    'every part of the console has no barrier and nothing beyond its width: %s, %i',
    async (colorScheme, width) => {
      await makeKey(['nodes'], HOSTILE.slice(0, 100))
      await sendBody(operator, 'POST', '/v1/dashboard/node', { node_name: HOSTILE.slice(-40) })
      const { page, faults, strangers } = await signIn(service.apiKey, '', {
        colorScheme,
        viewport: { width, height: 800 },
      })
      for (const part of await partsOf(page)) {
        await page.getByRole('link', { name: part, exact: true }).click()
        await page.getByRole('heading', { name: part, level: 1 }).waitFor()
        for (const summary of await page.locator('main summary:visible').all())
          await summary.click()
        expect([part, await findBarriers(page)]).toEqual([part, []])
        const wide = await page.evaluate('document.documentElement.scrollWidth')
        expect([part, Number(wide) <= width]).toEqual([part, true])
        await expectText(page)
      }
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    },
  )
})

describe.runIf(BROWSER.isMet)(BROWSER.title('keys'), () => {
  it('keys are made, used and revoked in the console', async () => {
    const { page } = await signIn(service.apiKey, '/keys')
    await page.getByText('Make a key', { exact: true }).click()
    await page.getByLabel('Name').fill(HOSTILE)
    await page.getByLabel('inference').uncheck()
    await page.getByRole('button', { name: 'Make the key' }).click()
    await page.getByText('Choose at least one use').waitFor()
    await page.getByLabel('inference').check()
    await page.getByLabel('It ends after').selectOption('7 days')
    await page.getByRole('button', { name: 'Make the key' }).click()
    await page.getByText('It is shown only once').waitFor()
    const key = (await page.locator('code.secret').textContent()) ?? ''
    const made = { url: service.url, key }
    expect((await getPath(made, VERIFIED_PATH)).status).toBe(200)
    await page.getByRole('button', { name: 'I have it' }).click()
    expect(await page.locator('main').textContent()).not.toContain(key)
    await page.getByRole('rowheader', { name: HOSTILE_SHOWN }).first().waitFor()
    await expectText(page)

    const id = key.split('_')[1] ?? ''
    await page.getByRole('button', { name: `Revoke key ${id}` }).click()
    const dialog = page.getByRole('dialog', { name: 'Revoke this key?' })
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    expect((await getPath(made, VERIFIED_PATH)).status).toBe(200)
    await page.getByRole('button', { name: `Revoke key ${id}` }).click()
    await dialog.getByRole('button', { name: 'Revoke' }).click()
    await page.getByRole('row', { name: id }).getByText('revoked').waitFor()
    await expect
      .poll(async () => outcomeOf(await getPath(made, VERIFIED_PATH)))
      .toEqual([401, 'invalid_credentials'])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('nodes'), () => {
  it('nodes come and go in the console while a reader looks, and nothing moves', async () => {
    const nodeId = await createMeasuredNode(operator, ['model-of-a-test'])
    const { page } = await signIn(service.apiKey, '/nodes')
    const row = page.getByRole('row', { name: nodeId })
    await row.getByText('Stopped').waitFor()
    await page.evaluate(WATCH_SHIFTS)
    const node = await connectScriptedNode({ ...operator, nodeId, model: 'model-of-a-test' })
    await row.getByText('Running').waitFor()
    await node.close()
    await row.getByText('Stopped').waitFor()
    expect(await page.evaluate('shifted')).toBe(0)
    await page.getByRole('button', { name: `Details of ${nodeId}` }).click()
    await page.getByText('AMD EPYC 7B13').waitFor()
    await page.getByText('The node serves no models now.').waitFor()
    for (const title of ['Requests by hour', 'First token after (median)']) {
      const chart = page.getByRole('figure', { name: title })
      await chart.locator('canvas').waitFor()
      await chart.getByText('As a table').click()
    }
    const hours = page.getByRole('figure', { name: 'Requests by hour' }).getByRole('row')
    await expect.poll(() => hours.count()).toBe(25)
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it('nodes are made in the console, with the command that starts their agent, and archived', async () => {
    const { page } = await signIn(service.apiKey, '/nodes')
    await page.getByText('Start a node', { exact: true }).click()
    await page.getByLabel('Name of the new node').fill('<b>mine</b>')
    await page.getByRole('button', { name: 'Make the node' }).click()
    const command = (await page.locator('.command code').textContent()) ?? ''
    const [, nodeId = ''] = /--node-id ([a-z_]+)$/.exec(command) ?? []
    expect(command).toContain(`--url ${service.url} `)
    expect(command).not.toContain('afd_')
    const row = page.getByRole('row', { name: nodeId })
    await row.getByText('<b>mine</b>').waitFor()
    await page.getByRole('button', { name: `Archive ${nodeId}` }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click()
    await row.waitFor({ state: 'detached' })
    await page.getByLabel('Show archived nodes').check()
    await row.getByText('Archived').waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the history'), () => {
  const HUGE = `${HOSTILE} ${'long '.repeat(100_000)}`

  it('the history shows what is stored as text, page by page, and saves evidence as it is', async () => {
    const hashes: string[] = []
    for (const content of [`first ${HOSTILE}`, HUGE, 'third', 'fourth', 'fifth']) {
      const messages = [{ role: 'user', content }]
      const reply = await postChat(operator, { model: 'demo/echo', messages })
      hashes.unshift(((await reply.json()) as { readonly hash: string }).hash)
    }
    const { page, faults } = await openPage(`${service.url}/console/history`)
    // Pages of two calls, so that five calls make three pages.
    await page.route(/[?&]limit=50/, (route) =>
      route.continue({ url: route.request().url().replace('limit=50', 'limit=2') }),
    )
    await page.getByLabel('API key').fill(service.apiKey)
    await page.getByRole('button', { name: 'Sign in' }).click()
    const all = page.getByRole('button', { name: /^Details of/ })
    for (const count of [2, 4]) {
      await expect.poll(() => all.count()).toBe(count)
      await page.getByRole('button', { name: 'Show older ones' }).click()
    }
    await expect.poll(() => all.count()).toBeGreaterThanOrEqual(5)
    for (const [index, hash] of hashes.entries())
      expect(await all.nth(index).getAttribute('aria-label')).toBe(
        `Details of ${hash.slice(0, 12)}`,
      )
    const rowOf = (hash: string | undefined) =>
      page.getByRole('row').filter({ hasText: hash?.slice(0, 12) ?? '' })
    const panel = page.getByRole('dialog', { name: /^Call/ })
    await rowOf(hashes[4]).getByText(`first ${HOSTILE_SHOWN}`, { exact: true }).waitFor()
    await all.nth(3).click()
    await panel.getByText('Everything that is stored').click()
    await panel.getByRole('button', { name: 'Show more' }).first().waitFor()
    await expectText(page)
    expect(await findBarriers(page)).toEqual([])

    await all.nth(4).click()
    const saved = page.waitForEvent('download')
    await panel.getByRole('button', { name: 'Save the evidence' }).click()
    const text = await readFile(await (await saved).path(), 'utf8')
    const path = `${VERIFIED_PATH}/${hashes[4]}/evidence`
    expect(text).toBe(await (await getPath(operator, path)).text())

    await panel
      .getByRole('button', { name: `Erase the content of ${hashes[4]?.slice(0, 12)}` })
      .click()
    const question = page.getByRole('dialog', { name: 'Erase question and answer?' })
    await question.getByRole('button', { name: 'Erase' }).click()
    await panel.getByText('Erased by the account').waitFor()
    await page.keyboard.press('Escape')
    await rowOf(hashes[4]).getByText('erased').waitFor()
    expect(await page.locator('main').textContent()).not.toContain('first')
    expect(await (await getPath(operator, `${VERIFIED_PATH}/${hashes[4]}`)).text()).not.toContain(
      'first',
    )
    expect(faults).toEqual([])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('searching the history'), () => {
  it('the search of the history finds by words, model, outcome, encryption and time', async () => {
    const word = `word${crypto.randomUUID()}`
    let hash = ''
    for (const [model, content] of [
      ['demo/echo', `Echo this ${word}`],
      ['demo/lorem', `Write 9 words ${word}`],
    ]) {
      const reply = await postChat(operator, { model, messages: [{ role: 'user', content }] })
      hash = ((await reply.json()) as { readonly hash: string }).hash
    }
    const { page } = await signIn(service.apiKey, '/history')
    const found = page.getByRole('button', { name: /^Details of/ })
    const search = async (count: number) => {
      await page.getByRole('button', { name: 'Search' }).click()
      await expect.poll(() => found.count()).toBe(count)
    }
    await page.getByLabel('Words in the text').fill(word.toUpperCase())
    await search(2)
    await page.getByLabel('Model').fill('demo/lorem')
    await search(1)
    await page.getByRole('rowheader', { name: 'demo/lorem' }).waitFor()
    await page.getByLabel('Model').fill('')
    await page.getByLabel('Encrypted').selectOption('encrypted')
    await search(0)
    await page.getByText('Nothing matches. Use fewer filters.').waitFor()
    await page.getByLabel('Encrypted').selectOption('not encrypted')
    await page.getByLabel('Outcome').selectOption('complete')
    await search(2)
    await page.getByLabel('From').fill('2001-01-01T00:00')
    await page.getByLabel('Until').fill('2001-01-02T00:00')
    await search(0)
    await page.getByLabel('Until').fill('')
    await search(2)
    await page.getByLabel('Provider').fill('another')
    await search(0)
    await page.getByLabel('Provider').fill('demo')
    await search(2)
    await page.getByLabel('a hash').fill(`0x${hash}`)
    await search(1)
    await page.getByRole('button', { name: `Details of ${hash.slice(0, 12)}` }).waitFor()
    await page.getByRole('button', { name: 'Reset' }).click()
    await expect.poll(() => found.count()).toBeGreaterThanOrEqual(2)
    await page.getByLabel('a hash').fill(hash.replaceAll(/./g, '0'))
    await search(0)
    await page.getByText('Nothing matches.').waitFor()
    await page.getByRole('button', { name: 'Reset' }).click()

    // A failed search shows no calls, and a call of an unknown form shows a placeholder.
    await page.route(/[?&]limit=50/, async (route) => {
      if (route.request().url().includes('gone')) return route.fulfill({ status: 503, json: {} })
      const response = await route.fetch()
      const json = await response.json()
      for (const { response: answer } of json.completions)
        if (answer !== null)
          answer.choices[0].message.content = [{ type: { toString: 1, valueOf: 1 } }]
      return route.fulfill({ response, json })
    })
    await page.getByLabel('Words in the text').fill(word)
    await page.getByRole('button', { name: 'Search' }).click()
    await found.first().click()
    await page.getByRole('dialog').getByText('[part: {').first().waitFor()
    await page.getByLabel('Words in the text').fill('gone')
    await search(0)
    await page.getByRole('button', { name: 'Try again' }).waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('calls in the history'), () => {
  const WIDE = { width: 1280, height: 800 }
  const PHONE = { width: 390, height: 844 }

  /**
   * Makes calls that a search for one word finds; gives the word, and the calls' hashes, newest
   * first.
   */
  const makeCalls = async (count: number) => {
    const word = `word${crypto.randomUUID()}`
    const hashes: string[] = []
    for (let n = 0; n < count; n++) {
      const messages = [{ role: 'user', content: `${word} ${n}` }]
      const reply = await postChat(operator, { model: 'demo/echo', messages })
      hashes.unshift(((await reply.json()) as { readonly hash: string }).hash)
    }
    return { word, hashes }
  }

  it.each([
    ['beside the list', WIDE],
    ['over the list, on a phone', PHONE],
  ] as const)('the details of a call open %s, and Escape closes them', async (_, viewport) => {
    const { hashes } = await makeCalls(1)
    const { page } = await signIn(service.apiKey, '/history', { viewport })
    const button = page.getByRole('button', { name: `Details of ${hashes[0]?.slice(0, 12)}` })
    await button.click()
    const panel = page.getByRole('dialog', { name: /^Call/ })
    await expect.poll(() => hasFocus(panel.getByRole('heading', { level: 2 }))).toBe(true)
    if (viewport === PHONE) {
      const { x, y, width = 0, height } = (await panel.boundingBox()) ?? {}
      expect({ x, y, height }).toEqual({ x: 0, y: 0, height: 844 })
      // The full width without a scroll bar.
      expect(width).toBeGreaterThanOrEqual(390 - 15)
    } else await expectInView(page, page.getByRole('row').nth(1).getByText('confirmed'))
    for (const name of ['Close', 'Save the evidence', /^Erase/])
      await expectInView(page, panel.getByRole('button', { name }))
    const evidence = panel.getByRole('link', { name: 'Public evidence' })
    expect(await evidence.getAttribute('href')).toBe(`/c/${hashes[0]}`)
    const log = panel.getByRole('link', { name: 'Log of its notary' })
    const href = await log.getAttribute('href')
    const { logs } = (await (await fetch(`${service.url}/v1/log`)).json()) as {
      readonly logs: readonly { readonly notary: string }[]
    }
    expect(logs.map(({ notary }) => `/log/${notary}`)).toContain(href)
    await panel.getByText('confirmed').waitFor()
    expect(await findBarriers(page)).toEqual([])
    // Escape closes the dialog first, and then the panel.
    await panel.getByRole('button', { name: /^Erase/ }).click()
    await page.keyboard.press('Escape')
    await page.getByText('Erase question and answer?').waitFor({ state: 'hidden' })
    expect(await panel.isVisible()).toBe(true)
    await page.keyboard.press('Escape')
    await panel.waitFor({ state: 'detached' })
    await expect.poll(() => hasFocus(button)).toBe(true)
    await page.context().close()
  })

  it('the selected calls are exported, or all that match, as records, table and evidence', async () => {
    const { word, hashes } = await makeCalls(3)
    const { page, faults } = await signIn(service.apiKey, '/history')
    await page.getByLabel('Words in the text').fill(word)
    await page.getByRole('button', { name: 'Search' }).click()
    await expect.poll(() => page.getByRole('button', { name: /^Details of/ }).count()).toBe(3)
    const save = async (name: string) => {
      const saved = page.waitForEvent('download')
      await page.getByRole('group', { name: 'Export' }).getByRole('button', { name }).click()
      return readFile(await (await saved).path(), 'utf8')
    }
    const linesOf = (text: string) => text.trimEnd().split(/\r?\n/)
    const hashesOf = (text: string) => linesOf(text).map((line) => JSON.parse(line).hash)

    await page.getByLabel('Select all shown').check()
    await page.getByText('Export 3 selected:').waitFor()
    await page.getByLabel(`Select ${hashes[1]?.slice(0, 12)}`).uncheck()
    await page.getByText('Export 2 selected:').waitFor()
    expect(await page.getByLabel('Select all shown').isChecked()).toBe(false)
    const records = await save('Records')
    const own = await getPath(operator, `/v1/verified/records/${hashes[0]}`)
    expect(JSON.parse(linesOf(records)[0] ?? '')).toEqual(await own.json())
    expect(hashesOf(records)).toEqual([hashes[0], hashes[2]])
    await page.getByText('2 saved.').waitFor()

    const table = linesOf(await save('Table'))
    expect(table[0]).toMatch(/^time,hash,model,/)
    for (const [line, hash] of [
      [1, hashes[0]],
      [2, hashes[2]],
    ] as const)
      expect(table[line]).toMatch(new RegExp(`Z,${hash},demo/echo,.*,demo,.*,complete,false,chat,`))
    expect(table[1]).toMatch(/,0x[0-9a-f]{40},\d+,(pending|mined|confirmed),0x[0-9a-f]{64},\d*$/)

    const bundles = linesOf(await save('Evidence')).map((line) => JSON.parse(line))
    expect(bundles.map(({ format }) => format)).toEqual([
      'affidavit-evidence-bundle',
      'affidavit-evidence-bundle',
    ])
    expect(JSON.stringify(bundles[1])).toContain(`${word} 0`)

    await page.getByRole('button', { name: 'Clear 2 selected' }).click()
    await page.getByText('Export all:').waitFor()
    // Pages of two, so that three make two pages.
    await page.route(/[?&]limit=100/, (route) =>
      route.continue({ url: route.request().url().replace('limit=100', 'limit=2') }),
    )
    expect(hashesOf(await save('Records'))).toEqual(hashes)
    expect(await findBarriers(page)).toEqual([])
    expect(faults).toEqual([])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the first screen'), () => {
  const open = async (part: string, [width, height]: readonly [number, number]) => {
    const { page } = await signIn(service.apiKey, part, { viewport: { width, height } })
    return page
  }
  /**
   * Expects that all of these cells of a row are in view, and that nothing is wider than the
   * screen.
   */
  const expectRow = async (page: Page, row: Locator, labels: readonly string[]) => {
    await row.waitFor()
    for (const label of labels) await expectInView(page, row.locator(`[data-label="${label}"]`))
    const wide = await page.evaluate(
      'document.documentElement.scrollWidth - document.documentElement.clientWidth',
    )
    expect(wide).toBeLessThanOrEqual(0)
    expect(await findBarriers(page)).toEqual([])
  }

  it.each([
    ['a desktop', [1280, 800]],
    ['a phone', [390, 844]],
  ] as const)('the first screens on %s show what each part is for', async (name, size) => {
    const isPhone = name === 'a phone'
    await postChat(operator, CHAT_REQUEST)
    const history = await open('/history', size)
    const call = history.locator('.calls tbody tr').first()
    const confirmed = call.locator('.state.good', { hasText: 'confirmed' })
    await confirmed.waitFor()
    expect(await confirmed.textContent()).toBe('✓ confirmed')
    const cells = ['Selected', 'Time', 'Provider', 'Outcome', 'Tokens', 'Hash', 'Anchor']
    await expectRow(history, call, cells)
    await expectInView(history, call.getByRole('rowheader'))
    await expectInView(history, history.getByLabel('Select all shown'))
    for (const kind of ['Records', 'Table', 'Evidence'])
      await expectInView(history, history.getByRole('button', { name: kind, exact: true }))
    const height = (await call.boundingBox())?.height ?? Number.POSITIVE_INFINITY
    expect(height).toBeLessThan(isPhone ? 100 : 36)
    const fold = history.getByRole('button', { name: 'Filters' })
    if (isPhone) await fold.click()
    for (const filter of ['a hash', 'Model', 'Provider', 'Outcome', 'From', 'Until'])
      await expectInView(history, history.getByLabel(filter))
    await expectInView(history, history.getByRole('button', { name: 'Search' }))
    expect(await findBarriers(history)).toEqual([])
    await history.context().close()

    const keys = await open('/keys', size)
    const key = keys.locator('tbody tr').first()
    await expectRow(keys, key, ['Account', 'Id', 'State', 'For', 'Last used', 'Made'])
    await expectInView(keys, key.getByRole('button', { name: /^Revoke/ }))
    await keys.context().close()

    const accounts = await open('/accounts', size)
    const account = accounts.locator('tbody tr').first()
    await expectRow(accounts, account, ['Id', 'Made', 'State', 'Tier'])
    for (const action of [/^Set/, /^Budgets/, /^Disable/, /^Delete/])
      await expectInView(accounts, account.getByRole('button', { name: action }))
    await accounts.context().close()

    const limits = await open('/limits', size)
    const used = limits.getByRole('region', { name: 'Usage by model' })
    await expectRow(limits, used.locator('tbody tr').first(), ['Requests', 'Tokens', 'Cost'])
    await used.getByRole('rowheader', { name: CHAT_REQUEST.model }).first().waitFor()
    await limits.context().close()
  })

  it.each([
    ['a desktop', [1280, 800]],
    ['a phone', [390, 844]],
  ] as const)('the playground on %s keeps its message box in view', async (name, size) => {
    const page = await open('/playground', size)
    const who = page.locator('.who')
    const fold = who.locator('> summary')
    const toggle = async () => {
      if (name === 'a phone') await fold.click()
    }
    const box = page.getByRole('textbox', { name: 'Message' })
    const conversation = page.getByRole('region', { name: 'Conversation' })
    const expectPlaces = async () => {
      await expectInView(page, box)
      await expectInView(page, page.getByRole('button', { name: 'Send' }))
      await expectInView(page, conversation)
      await expectInView(page, name === 'a phone' ? fold : page.getByLabel('Model'))
      await expectInView(page, who.locator('.state').first())
      expect(await page.evaluate('scrollY')).toBe(0)
    }
    await expectPlaces()
    await toggle()
    await page.getByLabel('Drop files here').setInputFiles(service.expectFile)
    await page.getByText('One enclave is as you expect').waitFor()
    await page.getByLabel('Model').selectOption('Another model')
    await page.getByLabel('Its id').fill('demo/echo')
    await toggle()
    await page.evaluate('scrollTo(0, 0)')
    for (let turn = 1; turn <= 3; turn++) {
      await box.fill(`Question of turn ${turn}`)
      await page.getByRole('button', { name: 'Send' }).click()
      const answer = page.getByRole('article', { name: `Question ${turn}` })
      await answer.getByText('Checked, development only').waitFor()
    }
    await page
      .getByText(/^. Anchored in block \d+$/)
      .nth(2)
      .waitFor()
    await expectPlaces()
    const left = () =>
      conversation.evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight)
    await expect.poll(left).toBeLessThan(2)
    expect(await conversation.evaluate((log) => log.scrollTop)).toBeGreaterThan(0)
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('operating'), () => {
  it('an administrator makes accounts and sets their tiers in the console', async () => {
    const { page } = await signIn(service.apiKey, '/accounts')
    const name = `<i>customer</i> ${crypto.randomUUID()}`
    await page.getByText('Make an account', { exact: true }).click()
    await page.getByLabel('Name of the new account').fill(name)
    await page.getByRole('button', { name: 'Make the account' }).click()
    const row = page.getByRole('row', { name })
    await row.getByLabel(`Tier of ${name}`).fill('no-such-tier')
    await row.getByRole('button', { name: `Set ${name}` }).click()
    await row.getByText('Give the name of a tier').waitFor()
    await row.getByLabel(`Tier of ${name}`).fill('')
    await row.getByRole('button', { name: `Set ${name}` }).click()
    await row.getByRole('alert').waitFor({ state: 'detached' })
    await expectText(page)
    await page.context().close()
  })

  it('an administrator disables, enables and deletes an account, page by page', async () => {
    const name = `<i>late</i> ${crypto.randomUUID()}`
    const made = await sendBody(operator, 'POST', '/v1/admin/accounts', { name })
    const { id: account_id } = (await made.json()) as { readonly id: string }
    const order = { name: 'k', scopes: ['nodes'], account_id }
    const { key } = (await (
      await sendBody(operator, 'POST', '/v1/dashboard/keys', order)
    ).json()) as { readonly key: string }
    const statusOf = async () => (await getPath({ ...operator, key }, '/v1/dashboard/me')).status
    // More newer accounts than one page shows.
    for (let n = 0; n < 51; n++)
      await sendBody(operator, 'POST', '/v1/admin/accounts', {
        name: `newer ${crypto.randomUUID()}`,
      })
    const { page } = await signIn(service.apiKey, '/accounts')
    const row = page.getByRole('row', { name })
    await page.getByRole('button', { name: 'Show older ones' }).waitFor()
    expect(await row.count()).toBe(0)
    await page.getByRole('button', { name: 'Show older ones' }).click()
    const button = (label: string) => row.getByRole('button', { name: `${label} ${name}` })
    // The list is rendered again after each act: `state` is a button that the account has before
    // the act.
    const confirm = async (label: string, state = label) => {
      await expect
        .poll(async () => {
          const older = page.getByRole('button', { name: 'Show older ones' })
          if ((await row.count()) === 0 && (await older.isVisible()))
            await older.click({ timeout: 1_000 }).catch(() => undefined)
          return await button(state).count()
        })
        .toBe(1)
      await button(label).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByText(name).waitFor()
      expect(await findBarriers(page)).toEqual([])
      await dialog.getByRole('button', { name: label }).click()
      await dialog.waitFor({ state: 'detached' }).catch(() => undefined)
    }
    await confirm('Disable')
    await expect.poll(statusOf).toBe(403)
    await confirm('Enable')
    await expect.poll(statusOf).toBe(200)
    await confirm('Delete', 'Disable')
    await expect.poll(statusOf).toBe(401)
    await expectText(page)
    await page.context().close()
  })

  it('an administrator sets and removes budgets, and the console shows their holder what is left', async () => {
    const name = `<b>budgeted</b> ${crypto.randomUUID()}`
    const made = await sendBody(operator, 'POST', '/v1/admin/accounts', { name })
    const { id: account_id } = (await made.json()) as { readonly id: string }
    const order = { name: 'k', scopes: ['nodes'], account_id }
    const { key } = (await (
      await sendBody(operator, 'POST', '/v1/dashboard/keys', order)
    ).json()) as { readonly key: string }
    const { page } = await signIn(service.apiKey, '/accounts')
    await page.getByRole('button', { name: `Budgets of ${name}` }).click()
    await page.getByText('The account has no budgets.').waitFor()
    const set = async (what: string, per: string, bound: string) => {
      await page.getByLabel('Of what').selectOption(what)
      await page.getByLabel('In', { exact: true }).selectOption(per)
      await page.getByLabel('At most').fill(bound)
      await page.getByRole('button', { name: 'Set the budget' }).click()
    }
    await set('requests', 'a day', '1.5')
    await page.getByText('This is not an amount.').waitFor()
    await set('requests', 'a day', '1200')
    const row = (what: string) => page.getByRole('row', { name: new RegExp(`the account ${what}`) })
    await row('requests').getByText('1,200').first().waitFor()
    await set('money', 'in all', '12.50')
    await expect
      .poll(() => row('money').getByRole('cell').allTextContents())
      .toEqual(['money', 'in all', '12.5', '0', '12.5', 'never', expect.stringContaining('Remove')])
    expect(await findBarriers(page)).toEqual([])
    await expectText(page)

    const theirs = await signIn(key, '/limits')
    const shown = theirs.page.getByRole('row', { name: /the account money/ })
    await expect
      .poll(() => shown.getByRole('cell').allTextContents())
      .toEqual(['money', 'in all', '12.5', '0', '12.5', 'never'])
    expect(await findBarriers(theirs.page)).toEqual([])
    await theirs.page.context().close()

    await row('money')
      .getByRole('button', { name: /^Remove/ })
      .click()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
    await row('money').waitFor({ state: 'detached' })

    type NewKey = { readonly id: string; readonly key: string }
    const makerOrder = { name: 'maker', scopes: ['inference', 'keys'], account_id }
    const maker = await sendBody(operator, 'POST', '/v1/dashboard/keys', makerOrder)
    const { id, key: makerKey } = (await maker.json()) as NewKey
    const by = { ...operator, key: makerKey }
    const twinOrder = { name: 'twin', scopes: ['inference'] }
    const twin = await sendBody(by, 'POST', '/v1/dashboard/keys', twinOrder)
    await page.getByLabel('Only for one key (its id)').fill(id)
    await set('requests', 'a day', '5')
    const { id: twinId } = (await twin.json()) as NewKey
    await page.getByText(`does not bound the keys that this key made: ${twinId}.`).waitFor()
    await page.context().close()
  })

  it('the console shows what administrators did, filtered and page by page, as text', async () => {
    const name = `trail ${HOSTILE.split('\u202E')[0]}`
    for (let n = 0; n < 51; n++)
      await sendBody(operator, 'PUT', '/v1/admin/accounts', { name, tier: null })
    const { page } = await signIn(service.apiKey, '/administration')
    const rows = page.getByRole('table').getByRole('row')
    await expect.poll(() => rows.count()).toBe(51)
    await page.getByText(name).first().waitFor()
    await page.getByRole('button', { name: 'Show older ones' }).click()
    await expect.poll(() => rows.count()).toBeGreaterThan(52)
    await page.getByLabel('What (such as key.create)').fill('key.create')
    await page.getByRole('button', { name: 'Search' }).click()
    await expect.poll(() => page.getByText('account.set_tier').count()).toBe(0)
    await page.getByText('key.create', { exact: true }).first().waitFor()
    await page.getByLabel('What (such as key.create)').fill('no.such')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText('There are no such entries.').waitFor()
    // The answer of a database that a stranger wrote to.
    await page.route(/\/v1\/admin\/log/, async (route) => {
      const response = await route.fetch()
      const { acts } = await response.json()
      const hostile = {
        who: HOSTILE,
        kind: HOSTILE,
        target: HOSTILE,
        details: { [HOSTILE]: HOSTILE },
      }
      return route.fulfill({
        response,
        json: { acts: acts.map((act: object) => ({ ...act, ...hostile })) },
      })
    })
    await page.getByLabel('What (such as key.create)').fill('')
    await page.getByRole('button', { name: 'Search' }).click()
    await page.getByText(HOSTILE_SHOWN).first().waitFor()
    await expectText(page)
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it('the console shows the enclave that serves, and adds, drains and forgets another', async () => {
    const { page } = await signIn(service.apiKey, '/enclaves')
    await page.getByRole('row', { name: 'enclave.sock' }).getByText('usable').waitFor()
    await page.getByText('Add an enclave', { exact: true }).click()
    await page.getByLabel('Its socket').fill('http://elsewhere')
    await page.getByRole('button', { name: 'Add the enclave' }).click()
    await page.getByRole('alert').getByText('unix: and an absolute path').waitFor()
    const url = `unix:/tmp/none-${crypto.randomUUID()}<b>.sock`
    await page.getByLabel('Its socket').fill(url)
    await page.getByRole('button', { name: 'Add the enclave' }).click()
    const row = page.getByRole('row', { name: url })
    const confirm = async (label: string) => {
      await row.getByRole('button', { name: `${label} ${url}` }).click()
      await page.getByRole('dialog').getByRole('button', { name: label }).click()
    }
    await confirm('Drain')
    await row.getByText('drained').waitFor()
    await confirm('Use again')
    await row.getByText(/connecting|unreachable/).waitFor()
    await confirm('Drain')
    await row.getByText('drained').waitFor()
    await confirm('Remove')
    await row.waitFor({ state: 'detached' })
    await expectText(page)
    await page.context().close()
  })

  it('the console shows what waits for the chain, and why', async () => {
    const { page } = await signIn(service.apiKey, '/anchors')
    await page.getByText('pays now').waitFor()
    await page.getByText('following').waitFor()
    await page.locator('.state', { hasText: /answers$/ }).waitFor()
    // The answer of a gateway in trouble.
    await page.route(/\/v1\/admin\/status$/, async (route) => {
      const response = await route.fetch()
      const status = (await response.json()) as {
        readonly commits: object
        readonly anchors: object
      }
      await route.fulfill({
        response,
        json: {
          commits: { ...status.commits, state: 'refusing', waiting_calls: 7, fault: HOSTILE },
          anchors: { ...status.anchors, state: 'failing', chain: 'failing', waiting: 3 },
        },
      })
    })
    await page.getByText('refusing').waitFor()
    await page.getByText(HOSTILE_SHOWN).waitFor()
    await page.getByText('does not answer').waitFor()
    await expectText(page)
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it('the operating parts are not for keys without the scope admin', async () => {
    const { page } = await signIn(await makeKey(['inference', 'nodes', 'history:all']), '/enclaves')
    expect(await partsOf(page)).toEqual([
      'Playground',
      'History',
      'Nodes',
      'Keys',
      'Limits and usage',
    ])
    await page.getByText('This part needs a key with the scope admin').waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('usage'), () => {
  it('the usage is drawn, and is a table too', async () => {
    await postChat(operator, CHAT_REQUEST)
    const { page, faults } = await openPage(`${service.url}/console/limits`)
    const scripts: string[] = []
    page.on('response', (response) => scripts.push(response.url()))
    await page.getByLabel('API key').fill(service.apiKey)
    await page.evaluate(WATCH_SHIFTS)
    await page.getByRole('button', { name: 'Sign in' }).click()
    const requests = page.getByRole('figure', { name: 'Requests' })
    await requests.locator('canvas').waitFor()
    await page.getByLabel('Of the last').selectOption('24 hours, by hour')
    await requests.getByText('As a table').click()
    await expect.poll(() => requests.getByRole('row').count()).toBe(25)
    const counts = await requests.getByRole('row').last().getByRole('cell').allTextContents()
    expect(Number(counts[1])).toBeGreaterThan(0)
    const money = page.getByRole('figure', { name: 'Money' })
    await money.getByText('As a table').click()
    await expect.poll(() => money.getByRole('row').count()).toBe(25)
    const spent = await money.getByRole('row').last().getByRole('cell').allTextContents()
    expect(Number(spent[1])).toBeGreaterThan(0)
    const row = page.getByRole('row', { name: /^demo\/.* verified/ }).first()
    expect(Number(await row.getByRole('cell').last().textContent())).toBeGreaterThan(0)
    expect(scripts.filter((url) => url.includes('/assets/')).length).toBeGreaterThan(0)
    expect(faults).toEqual([])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the playground'), () => {
  const ask = async (page: Page, question: string) => {
    await page.getByRole('textbox', { name: 'Message' }).fill(question)
    await page.getByRole('button', { name: 'Send' }).click()
  }
  /** Expects the development enclave, and chooses a model. */
  const open = async (model = 'demo/echo') => {
    const opened = await signIn(service.apiKey)
    const { page } = opened
    await page.getByLabel('Drop files here').setInputFiles(service.expectFile)
    await page.getByText('One enclave is as you expect').waitFor()
    await page.getByLabel('Model').selectOption('Another model')
    await page.getByLabel('Its id').fill(model)
    return opened
  }

  it('the playground sends nothing while nothing is expected, and says that nothing is established', async () => {
    const { page } = await signIn(service.apiKey)
    await page.getByRole('button', { name: 'Do not use them' }).click()
    await page.getByText('it is not known who holds the key that signs answers').waitFor()
    await page.getByRole('textbox', { name: 'Message' }).fill('secret')
    expect(await page.getByRole('button', { name: 'Send' }).isDisabled()).toBe(true)
    await page.context().close()
  })

  it('the playground begins with the same model after calls of others, and offers ids by their patterns', async () => {
    const chosen = async () => {
      const { page } = await signIn(service.apiKey)
      const options = page.getByLabel('Model').locator('option')
      await expect.poll(() => options.count()).toBeGreaterThan(1)
      const value = await page.getByLabel('Model').inputValue()
      await page.getByLabel('Model').selectOption('Another model')
      await page.getByText('such as demo/*').waitFor()
      await page.context().close()
      return value
    }
    const first = await chosen()
    const gateway = { url: service.url, key: service.apiKey }
    for (const model of ['demo/lorem', 'demo/zz', 'demo/aa'])
      await (await postChat(gateway, { ...CHAT_REQUEST, model })).text()
    expect(await chosen()).toBe(first)
  })

  it('the playground refuses an enclave that is not the expected one', async () => {
    const { page } = await signIn(service.apiKey)
    const expected = JSON.parse(await readFile(service.expectFile, 'utf8'))
    const other = { ...expected, measurements: [{ PCR0: '00'.repeat(48) }] }
    await page.getByLabel('Drop files here').setInputFiles({
      name: 'expect.json',
      mimeType: 'application/json',
      buffer: Buffer.from(JSON.stringify(other)),
    })
    await page.getByText('has another enclave than you expect').waitFor()
    expect(await page.getByRole('button', { name: 'Send' }).isDisabled()).toBe(true)
    await page.context().close()
  })

  it.each([
    ['encrypted', true],
    ['not encrypted', false],
  ])(
    'the playground chats, %s, until the anchor is mined, and its proof is a file',
    async (_, isEncrypted) => {
      const { page, faults, strangers } = await open()
      const bodies: string[] = []
      page.on('request', (request) => {
        if (request.method() === 'POST') bodies.push(request.postDataBuffer()?.toString() ?? '')
      })
      if (!isEncrypted) {
        await page.getByLabel('Encrypt to the enclave').uncheck()
        await page.getByText('One enclave is as you expect').waitFor()
      }
      const question = `${HOSTILE} ${crypto.randomUUID()}`
      await ask(page, question)
      const turn = page.getByRole('article', { name: 'Question 1' })
      await turn.getByText(/^. Anchored in block \d+$/).waitFor()
      expect(await turn.textContent()).toContain(`[demonstration] You said: ${HOSTILE_SHOWN}`)
      await expectText(page)
      expect(await turn.locator('.state.bad').count()).toBe(0)
      const isRead = bodies.some((body) => body.includes(question.slice(-36)))
      expect(isRead).toBe(!isEncrypted)
      await turn.getByText(/^Checks of the answer: 1[5-9] passed/).click()
      await turn.getByRole('listitem').filter({ hasText: 'signature' }).first().waitFor()
      expect(await findBarriers(page)).toEqual([])

      const saved = page.waitForEvent('download')
      await turn.getByRole('button', { name: 'Save the proof' }).click()
      const text = await readFile(await (await saved).path(), 'utf8')
      // Its anchor is mined: the file has the evidence too.
      expect(parseSavedProof(JSON.parse(text))).toMatchObject({
        request: { messages: [{ content: question }] },
        bundle: { format: 'affidavit-evidence-bundle' },
      })
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })

      // The conversation survives a look at another part, and continues.
      await page.getByRole('link', { name: 'Limits and usage', exact: true }).click()
      await page.getByRole('link', { name: 'Playground', exact: true }).click()
      await ask(page, 'and again')
      const next = page.getByRole('article', { name: 'Question 2' })
      await next.getByText('Checked, development only').waitFor()
      await page.context().close()
    },
  )

  it('the playground refuses an answer that the gateway altered, and says so at the check', async () => {
    const { page } = await open('demo/lorem')
    await page.getByLabel('Encrypt to the enclave').uncheck()
    await page.getByText('One enclave is as you expect').waitFor()
    await page.route(/\/v1\/verified\/chat\/completions$/, async (route) => {
      const response = await route.fetch()
      const text = await response.text()
      await route.fulfill({
        response,
        body: text.replace(/"content":" \w+"/, '"content":" altered"'),
      })
    })
    await ask(page, 'Write 80 words, lorem')
    const turn = page.getByRole('article', { name: 'Question 1' })
    await turn.getByText(/^. Refused$/).waitFor()
    await turn.getByText('Do not use this answer').waitFor()
    expect(await turn.locator('.checks .state.bad').count()).toBeGreaterThan(0)
    // The text that came is folded away, and not left like an answer.
    expect(await turn.locator('.refused').isVisible()).toBe(false)
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it('the playground refuses an encrypted answer in which a byte was changed', async () => {
    const { page } = await open()
    await page.route(/\/v1\/verified\/chat\/completions$/, async (route) => {
      const response = await route.fetch()
      const body = await response.body()
      body.writeUInt8(body.readUInt8(body.length - 1) ^ 1, body.length - 1)
      await route.fulfill({ response, body })
    })
    await ask(page, 'Hello')
    await page.getByText(/^. Refused$/).waitFor()
    await page.context().close()
  })

  it('the playground says what to do when there is no answer, and stops an answer that is coming', async () => {
    const { page } = await open(`demo/${HOSTILE}`)
    await ask(page, 'Hello')
    await page.getByRole('article').getByRole('alert').waitFor()
    await expectText(page)
    await page.getByLabel('Its id').fill('demo/lorem')
    let stop = () => {}
    const isStopped = new Promise<void>((resolve) => {
      stop = resolve
    })
    await page.route(/\/v1\/verified\/chat\/completions$/, async (route) => {
      await isStopped
      await route.abort()
    })
    await ask(page, 'Write 9 words')
    await page.getByRole('button', { name: 'Stop' }).click()
    await page.getByText(/^. Stopped$/).waitFor()
    stop()
    await page.context().close()
  })

  it('the playground takes models and files of any name and size as text', async () => {
    const { page } = await openPage(`${service.url}/console`)
    await page.route(/\/v1\/verified\/models$/, (route) =>
      route.fulfill({ json: { data: [{ id: HOSTILE }, { id: 'x'.repeat(1_000_000) }] } }),
    )
    await page.getByLabel('API key').fill(service.apiKey)
    await page.getByRole('button', { name: 'Sign in' }).click()
    const options = page.getByLabel('Model').locator('option')
    await expect.poll(() => options.allTextContents()).toContain(HOSTILE_SHOWN)
    expect((await options.allTextContents()).every(({ length }) => length <= 110)).toBe(true)
    await page.getByLabel('Drop files here').setInputFiles({
      name: `${HOSTILE}.json`,
      mimeType: 'application/json',
      buffer: Buffer.from(`{"of": "${HOSTILE.replaceAll('"', "'")}"}`),
    })
    await page.getByRole('alert').getByText(HOSTILE_SHOWN).waitFor()
    await expectText(page)
    await page.context().close()
  })
})

/** Opens and closes in one task, so that the close event comes last; then waits for the event. */
const OPEN_CLOSE_OPEN = `new Promise((resolve) => {
  const dialog = document.querySelector('td dialog')
  const button = dialog.previousElementSibling
  dialog.addEventListener('close', () => requestAnimationFrame(resolve), { once: true })
  button.click()
  dialog.close()
  button.click()
})`

/** All storage of a page. */
const storageOf = (page: Page): Promise<string> =>
  page.evaluate(`(async () => JSON.stringify([
    Object.entries(localStorage), Object.entries(sessionStorage), document.cookie,
    await indexedDB.databases(), await caches.keys(), history.state, name,
  ]))()`)

/** The whole element is on the screen, without scrolling. */
async function expectInView(page: Page, element: Locator): Promise<void> {
  await element.waitFor()
  const { x, y, width, height } = (await element.boundingBox()) ?? {
    x: -1,
    y: -1,
    width: 0,
    height: 0,
  }
  const screen = page.viewportSize() ?? { width: 0, height: 0 }
  expect({
    element: String(element),
    isInView: x >= 0 && y >= 0 && x + width <= screen.width && y + height <= screen.height,
  }).toEqual({ element: String(element), isInView: true })
}

const hasFocus = async (element: Locator) =>
  (await element.and(element.page().locator(':focus')).count()) === 1

/** Presses Tab until an element has the focus. */
async function tabTo(page: Page, element: Locator): Promise<void> {
  await element.waitFor()
  for (let presses = 0; presses < 80; presses++) {
    if (await hasFocus(element)) return
    await page.keyboard.press('Tab')
  }
  throw new Error(`expected to reach ${element} by the tab key`)
}

/** Counts layout shifts from now on. */
const WATCH_SHIFTS = `
  globalThis.shifted = 0
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput } of list.getEntries())
      if (!hadRecentInput) globalThis.shifted += value
  }).observe({ type: 'layout-shift' })`
