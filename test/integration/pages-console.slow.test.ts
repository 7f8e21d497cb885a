import { readFile } from 'node:fs/promises'
import type { Locator, Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { parseEvidenceBundle } from '#attestation/evidence/bundle.ts'
import { readEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { getPath, outcomeOf, VERIFIED_PATH } from '../support/calls.ts'
import { complete } from '../support/completions.ts'
import { expectInView, SCREENS } from '../support/in-view.ts'
import { WATCH_SHIFTS } from '../support/page-scripts.ts'
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

type NewKey = { readonly id: string; readonly key: string }

/** A new key, of the service's account or of another. */
async function makeKey(scopes: readonly string[], accountId?: string): Promise<NewKey> {
  const order = { name: HOSTILE.slice(0, 100), scopes, account_id: accountId }
  const reply = await sendBody(operator, 'POST', '/v1/dashboard/keys', order)
  return (await reply.json()) as NewKey
}

/** A verified call; gives its hash. */
const ask = async (content: string, model?: string) =>
  (await complete(service, content, model)).hash

async function enterKey(page: Page, key = service.apiKey): Promise<void> {
  await page.getByLabel('API key').fill(key)
  await page.getByRole('button', { name: 'Sign in' }).click()
}

/** Opens a part of the console and signs in. */
async function signIn(part = '', key?: string, options?: Parameters<typeof openPage>[1]) {
  const opened = await openPage(`${service.url}/console${part}`, options)
  await enterKey(opened.page, key)
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

/** Pages of `count` entries, so that a few make several. */
const shortenPages = (page: Page, [from, count]: readonly [number, number]) =>
  page.route(new RegExp(`[?&]limit=${from}`), (route) =>
    route.continue({ url: route.request().url().replace(`limit=${from}`, `limit=${count}`) }),
  )

describe.runIf(BROWSER.isMet)(BROWSER.title('signing in to the console'), () => {
  it('the console refuses an invalid key, and says what to do', async () => {
    const { page } = await openPage(`${service.url}/console`)
    for (const [key, words] of [
      [service.apiKey.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A')), 'copied the whole key'],
      ['two words', 'copy it again'],
    ] as const) {
      await enterKey(page, key)
      await page.getByRole('alert').filter({ hasText: words }).waitFor()
      await expect.poll(() => hasFocus(page.getByLabel('API key'))).toBe(true)
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
    await enterKey(page)
    for (const part of ['Keys', 'Limits and usage', 'Nodes', 'Playground'])
      await page.getByRole('link', { name: part, exact: true }).click()
    expect(await storageOf(page)).not.toContain('afd_')
    expect([...senders]).toEqual([service.url])
    expect(urls.join(' ') + page.url()).not.toContain('afd_')
    await page.reload()
    await page.getByLabel('API key').waitFor()

    await page.getByLabel('Keep it').check()
    await enterKey(page)
    await page.getByRole('heading', { name: 'Playground' }).waitFor()
    expect(await page.evaluate('Object.values(sessionStorage)')).toEqual([service.apiKey])
    expect(await page.evaluate('[localStorage.length, document.cookie]')).toEqual([0, ''])
    await page.reload()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByLabel('API key').waitFor()
    expect(await storageOf(page)).not.toContain('afd_')
    expect(strangers).toEqual([])
    await page.context().close()
  })

  it('the console shows a key what it is for, and signs it out when it is revoked elsewhere', async () => {
    const others = await signIn(
      '/enclaves',
      (await makeKey(['inference', 'nodes', 'history:all'])).key,
    )
    await others.page.getByText('This part needs a key with the scope admin').waitFor()
    expect(await partsOf(others.page)).not.toContain('Enclaves')
    await others.page.context().close()

    const { id, key } = await makeKey(['nodes'])
    const { page } = await signIn('/playground', key)
    expect(await partsOf(page)).toEqual(['Nodes', 'Keys'])
    await page.getByText('This part needs a key with the scope inference').waitFor()
    await page.getByRole('link', { name: 'Nodes', exact: true }).click()
    await fetch(`${service.url}/v1/dashboard/keys/${id}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${operator.key}` },
    })
    await page.getByText('This key is no longer valid').waitFor()
    expect(await page.locator('table').count()).toBe(0)
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('every part of the console'), () => {
  it.each([
    ['light', 1280],
    ['dark', 360],
  ] as const)(
    'every part of the console has no barrier and nothing beyond its width: %s, %i',
    async (colorScheme, width) => {
      await makeKey(['nodes'])
      await sendBody(operator, 'POST', '/v1/dashboard/node', { node_name: HOSTILE.slice(-40) })
      const { page, faults, strangers } = await signIn('', service.apiKey, {
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

  it('keys are made, used and revoked by keys alone, and the focus is where the reader went', async () => {
    const { page } = await openPage(`${service.url}/console`)
    await tabTo(page, page.getByLabel('API key'))
    await page.keyboard.type(service.apiKey)
    await page.keyboard.press('Enter')
    await tabTo(page, page.getByRole('link', { name: 'Keys', exact: true }))
    await page.keyboard.press('Enter')
    const heading = page.getByRole('heading', { name: 'Keys', exact: true })
    await expect.poll(() => hasFocus(heading)).toBe(true)
    await tabTo(page, page.getByText('Create a key', { exact: true }))
    await page.keyboard.press('Enter')
    await tabTo(page, page.getByLabel('Name'))
    await page.keyboard.type('made by keys')
    await page.keyboard.press('Enter')
    await page.getByText('It is shown only once').waitFor()
    const key = (await page.locator('code.secret').textContent()) ?? ''
    const id = key.split('_')[1] ?? ''
    const made = { url: service.url, key }
    await page.getByRole('button', { name: 'I have it' }).click()
    expect(await page.locator('main').textContent()).not.toContain(key)

    const revoke = page.getByRole('button', { name: `Revoke key ${id}` })
    const dialog = page.getByRole('dialog', { name: 'Revoke this key?' })
    await tabTo(page, revoke)
    await page.keyboard.press('Enter')
    await dialog.waitFor()
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'hidden' })
    await expect.poll(() => hasFocus(revoke)).toBe(true)
    expect((await getPath(made, VERIFIED_PATH)).status).toBe(200)
    await page.keyboard.press('Enter')
    await dialog.waitFor()
    await tabTo(page, dialog.getByRole('button', { name: 'Revoke' }))
    await page.keyboard.press('Enter')
    await page.getByRole('row', { name: id }).getByText('revoked').waitFor()
    await expect
      .poll(async () => outcomeOf(await getPath(made, VERIFIED_PATH)))
      .toEqual([401, 'invalid_credentials'])

    // A dialog that is opened again before its close event came has its words.
    await page.evaluate(OPEN_CLOSE_OPEN)
    await dialog.getByRole('button', { name: 'Cancel' }).click()
    await page.goBack()
    await expect.poll(() => hasFocus(page.getByRole('heading', { level: 1 }))).toBe(true)
    await page.context().close()
  })

  it('nodes are made, come, go and are archived while a reader looks, and nothing moves', async () => {
    const nodeId = await createMeasuredNode(operator, ['model-of-a-test'])
    const { page } = await signIn('/nodes')
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
    const chart = page.getByRole('figure', { name: 'Requests by hour' })
    await chart.locator('canvas').waitFor()
    await chart.getByText('As a table').click()
    await expect.poll(() => chart.getByRole('row').count()).toBe(25)
    expect(await findBarriers(page)).toEqual([])

    await page.goto(`${service.url}/console/nodes`)
    await enterKey(page)
    await page.getByText('Start a node', { exact: true }).click()
    await page.getByLabel('Name of the new node').fill('<b>mine</b>')
    await page.getByRole('button', { name: 'Create the node' }).click()
    const command = (await page.locator('.command code').textContent()) ?? ''
    const [, madeId = ''] = /--node-id ([a-z_]+)$/.exec(command) ?? []
    expect(command).toContain(`--url ${service.url} `)
    expect(command).not.toContain('afd_')
    const made = page.getByRole('row', { name: madeId })
    await made.getByText('<b>mine</b>').waitFor()
    await page.getByRole('button', { name: `Archive ${madeId}` }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Archive' }).click()
    await made.waitFor({ state: 'detached' })
    await page.getByLabel('Show archived nodes').check()
    await made.getByText('Archived').waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the history'), () => {
  const detailsOf = (hash: string | undefined) => `Details of ${hash?.slice(0, 12)}`

  it('the history shows what is stored as text, page by page, saves evidence as it is and erases', async () => {
    const hashes: string[] = []
    const huge = `${HOSTILE} ${'long '.repeat(100_000)}`
    for (const content of [`first ${HOSTILE}`, huge, 'third', 'fourth', 'fifth'])
      hashes.unshift(await ask(content))
    const { page, faults } = await openPage(`${service.url}/console/history`)
    await shortenPages(page, [50, 2])
    await enterKey(page)
    const all = page.getByRole('button', { name: /^Details of/ })
    for (const count of [2, 4]) {
      await expect.poll(() => all.count()).toBe(count)
      await page.getByRole('button', { name: 'Show older ones' }).click()
    }
    await expect.poll(() => all.count()).toBeGreaterThanOrEqual(5)
    for (const [index, hash] of hashes.entries())
      expect(await all.nth(index).getAttribute('aria-label')).toBe(detailsOf(hash))
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
    const path = `${VERIFIED_PATH}/${hashes[4]}`
    expect(await download(page, panel.getByRole('button', { name: 'Save the evidence' }))).toBe(
      await (await getPath(operator, `${path}/evidence`)).text(),
    )
    await panel.getByRole('button', { name: /^Erase the content of/ }).click()
    const question = page.getByRole('dialog', { name: 'Erase question and answer?' })
    await question.getByRole('button', { name: 'Erase' }).click()
    await panel.getByText('Erased by the account').waitFor()
    await page.keyboard.press('Escape')
    await rowOf(hashes[4]).getByText('erased').waitFor()
    expect(await page.locator('main').textContent()).not.toContain('first')
    expect(await (await getPath(operator, path)).text()).not.toContain('first')
    expect(faults).toEqual([])
    await page.context().close()
  })

  it('the history is searched by words, model, outcome, encryption, time, provider and hash', async () => {
    const word = `word${crypto.randomUUID()}`
    await ask(`Echo this ${word}`)
    const hash = await ask(`Write 9 words ${word}`, 'demo/lorem')
    const { page } = await signIn('/history')
    const found = page.getByRole('button', { name: /^Details of/ })
    const search = async (label: string, text: string, count: number) => {
      await page.getByLabel(label).fill(text)
      await page.getByRole('button', { name: 'Search' }).click()
      await expect.poll(() => found.count()).toBe(count)
    }
    await search('Words in the text', word.toUpperCase(), 2)
    await search('Model', 'demo/lorem', 1)
    await search('Model', '', 2)
    await search('Provider', 'another', 0)
    await page.getByText('Nothing matches. Use fewer filters.').waitFor()
    await page.getByLabel('Encrypted').selectOption('not encrypted')
    await page.getByLabel('Outcome').selectOption('complete')
    await search('Provider', 'demo', 2)
    await search('From', '2001-01-01T00:00', 2)
    await search('Until', '2001-01-02T00:00', 0)
    await search('Until', '', 2)
    await search('a hash', `0x${hash}`, 1)
    await page.getByRole('button', { name: detailsOf(hash) }).waitFor()
    await page.getByRole('button', { name: 'Reset' }).click()

    // A call of an unknown form shows a placeholder, and a failed search no calls.
    await page.route(/[?&]limit=50/, async (route) => {
      if (route.request().url().includes('gone')) return route.fulfill({ status: 503, json: {} })
      const response = await route.fetch()
      const json = await response.json()
      // The answers of calls that are still under way are null.
      for (const { response: answer } of json.completions)
        if (answer !== null)
          answer.choices[0].message.content = [{ type: { toString: 1, valueOf: 1 } }]
      return route.fulfill({ response, json })
    })
    await search('Words in the text', word, 2)
    await found.first().click()
    await page.getByRole('dialog').getByText('[part: {').first().waitFor()
    await search('Words in the text', 'gone', 0)
    await page.getByRole('button', { name: 'Try again' }).waitFor()
    await page.context().close()
  })

  it.each(SCREENS)(
    'the first screen of the history, and of a call, has what they are for, at $width × $height',
    async (viewport) => {
      const hash = await ask('on the screen')
      const { page } = await signIn('/history', service.apiKey, { viewport })
      const isPhone = viewport.width < 600
      const call = page.locator('.calls tbody tr').first()
      const confirmed = call.locator('.state.good', { hasText: '✓ confirmed' })
      const cell = (label: string) => call.locator(`[data-label="${label}"]`)
      const shown = {
        confirmed,
        time: cell('Time'),
        outcome: cell('Outcome'),
        hash: cell('Hash'),
        export: page.getByRole('button', { name: 'Evidence', exact: true }),
        all: page.getByLabel('Select all shown'),
      }
      await expectInView(page, shown)
      expect((await call.boundingBox())?.height).toBeLessThan(isPhone ? 100 : 36)

      const button = page.getByRole('button', { name: detailsOf(hash) })
      await button.click()
      const panel = page.getByRole('dialog', { name: /^Call/ })
      await expect.poll(() => hasFocus(panel.getByRole('heading', { level: 2 }))).toBe(true)
      const parts = {
        close: panel.getByRole('button', { name: 'Close' }),
        save: panel.getByRole('button', { name: 'Save the evidence' }),
        erase: panel.getByRole('button', { name: /^Erase/ }),
      }
      await expectInView(page, parts)
      if (isPhone)
        expect(await panel.boundingBox()).toMatchObject({ x: 0, y: 0, height: viewport.height })
      const linkTo = (name: string) => panel.getByRole('link', { name }).getAttribute('href')
      expect(await linkTo('Public evidence')).toBe(`/c/${hash}`)
      expect(await linkTo('Log of its notary')).toMatch(/^\/log\/0x[0-9a-f]{40}$/)
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
    },
  )

  it('the selected calls are exported, or all that match, as records, table and evidence', async () => {
    const word = `word${crypto.randomUUID()}`
    const hashes: string[] = []
    for (const number of [0, 1, 2]) hashes.unshift(await ask(`${word} ${number}`))
    const { page, faults } = await signIn('/history')
    await page.getByLabel('Words in the text').fill(word)
    await page.getByRole('button', { name: 'Search' }).click()
    await expect.poll(() => page.getByRole('button', { name: /^Details of/ }).count()).toBe(3)
    const save = async (name: string) => {
      const group = page.getByRole('group', { name: 'Export' })
      const text = await download(page, group.getByRole('button', { name }))
      return text.trimEnd().split(/\r?\n/)
    }
    const hashesIn = (lines: readonly string[]) => lines.map((line) => JSON.parse(line).hash)

    await page.getByLabel('Select all shown').check()
    await page.getByText('Export 3 selected:').waitFor()
    await page.getByLabel(`Select ${hashes[1]?.slice(0, 12)}`).uncheck()
    await page.getByText('Export 2 selected:').waitFor()
    const records = await save('Records')
    const own = await getPath(operator, `/v1/verified/records/${hashes[0]}`)
    expect(JSON.parse(records[0] ?? '')).toEqual(await own.json())
    expect(hashesIn(records)).toEqual([hashes[0], hashes[2]])
    await page.getByText('2 saved.').waitFor()

    const [titles, first, second] = await save('Table')
    expect(titles).toMatch(/^time,hash,model,/)
    expect(first).toMatch(new RegExp(`Z,${hashes[0]},demo/echo,.*,demo,.*,complete,false,chat,`))
    expect(first).toMatch(/,0x[0-9a-f]{40},\d+,(pending|mined|confirmed),0x[0-9a-f]{64},\d*$/)
    expect(second).toContain(`,${hashes[2]},`)
    const evidence = (await save('Evidence')).join('\n')
    const calls = readEvidenceLines(Buffer.from(evidence)) ?? []
    expect(calls.map((call) => parseEvidenceBundle(call).record.hash)).toEqual([
      hashes[0],
      hashes[2],
    ])
    expect(evidence).toContain(`${word} 0`)

    await page.getByRole('button', { name: 'Clear 2 selected' }).click()
    await page.getByText('Export all:').waitFor()
    await shortenPages(page, [100, 2])
    expect(hashesIn(await save('Records'))).toEqual(hashes)
    expect(faults).toEqual([])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('operating'), () => {
  type Made = { readonly id: string }
  const makeAccount = async (name: string) =>
    (await (await sendBody(operator, 'POST', '/v1/admin/accounts', { name })).json()) as Made

  it('an administrator makes an account, sets its tier, disables, enables and deletes it', async () => {
    const name = `<i>customer</i> ${crypto.randomUUID()}`
    const { page } = await signIn('/accounts')
    await page.getByText('Create an account', { exact: true }).click()
    await page.getByLabel('Name of the new account').fill(name)
    await page.getByRole('button', { name: 'Create the account' }).click()
    const row = page.getByRole('row', { name })
    await row.getByLabel(`Tier of ${name}`).fill('no-such-tier')
    await row.getByRole('button', { name: `Set ${name}` }).click()
    await row.getByText('Give the name of a tier').waitFor()
    await row.getByLabel(`Tier of ${name}`).fill('')
    await row.getByRole('button', { name: `Set ${name}` }).click()
    await row.getByRole('alert').waitFor({ state: 'detached' })

    const { accounts } = (await (await getPath(operator, '/v1/admin/accounts')).json()) as {
      readonly accounts: readonly (Made & { readonly name: string })[]
    }
    const { key } = await makeKey(['nodes'], accounts.find((one) => one.name === name)?.id)
    const status = async () => (await getPath({ ...operator, key }, '/v1/dashboard/me')).status
    for (const [act, then] of [
      ['Disable', 403],
      ['Enable', 200],
      ['Delete', 401],
    ] as const) {
      await row.getByRole('button', { name: `${act} ${name}` }).click()
      const dialog = page.getByRole('dialog')
      await dialog.getByText(name).waitFor()
      await dialog.getByRole('button', { name: act }).click()
      await expect.poll(status).toBe(then)
    }
    await expectText(page)
    await page.context().close()
  })

  it('an administrator sets and removes budgets, and the console shows their holder what is left', async () => {
    const name = `<b>budgeted</b> ${crypto.randomUUID()}`
    const { id: accountId } = await makeAccount(name)
    const maker = await makeKey(['inference', 'keys'], accountId)
    const twin = (await (
      await sendBody({ ...operator, key: maker.key }, 'POST', '/v1/dashboard/keys', {
        name: 'twin',
        scopes: ['inference'],
      })
    ).json()) as NewKey
    const { page } = await signIn('/accounts')
    await page.getByRole('button', { name: `Budgets of ${name}` }).click()
    await page.getByText('The account has no budgets.').waitFor()
    const set = async (what: string, per: string, bound: string) => {
      await page.getByLabel('Of what').selectOption(what)
      await page.getByLabel('In', { exact: true }).selectOption(per)
      await page.getByLabel('At most').fill(bound)
      await page.getByRole('button', { name: 'Set the budget' }).click()
    }
    const cellsOf = (shown: Page) =>
      shown
        .getByRole('row', { name: /the account money/ })
        .getByRole('cell')
        .allTextContents()
    const money = ['money', 'in all', '12.5', '0', '12.5', 'never']
    await set('requests', 'a day', '1.5')
    await page.getByText('This is not an amount.').waitFor()
    await set('money', 'in all', '12.50')
    await expect.poll(() => cellsOf(page)).toEqual([...money, expect.stringContaining('Remove')])
    expect(await findBarriers(page)).toEqual([])
    const theirs = await signIn('/limits', (await makeKey(['inference'], accountId)).key)
    await expect.poll(() => cellsOf(theirs.page)).toEqual(money)
    await theirs.page.context().close()

    await page.getByLabel('Only for one key (its id)').fill(maker.id)
    await set('requests', 'a day', '5')
    await page.getByText(`does not bound the keys that this key created: ${twin.id}.`).waitFor()
    const row = page.getByRole('row', { name: /the account money/ })
    await row.getByRole('button', { name: /^Remove/ }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click()
    await row.waitFor({ state: 'detached' })
    await expectText(page)
    await page.context().close()
  })

  it('the console shows what administrators did, filtered and page by page, as text', async () => {
    // More acts than one page shows.
    const order = { name: 'a trail', tier: null }
    for (let act = 0; act < 51; act++) await sendBody(operator, 'PUT', '/v1/admin/accounts', order)
    const { page } = await signIn('/administration')
    const rows = page.getByRole('table').getByRole('row')
    await expect.poll(() => rows.count()).toBe(51)
    await page.getByText('a trail').first().waitFor()
    await page.getByRole('button', { name: 'Show older ones' }).click()
    await expect.poll(() => rows.count()).toBeGreaterThan(52)
    const search = async (kind: string) => {
      await page.getByLabel('What (such as key.create)').fill(kind)
      await page.getByRole('button', { name: 'Search' }).click()
    }
    await search('key.create')
    await expect.poll(() => page.getByText('account.set_tier').count()).toBe(0)
    await page.getByText('key.create', { exact: true }).first().waitFor()
    await search('no.such')
    await page.getByText('There are no such entries.').waitFor()
    // The answer of a database that a stranger wrote to.
    await page.route(/\/v1\/admin\/log/, async (route) => {
      const response = await route.fetch()
      const { acts } = await response.json()
      const details = { [HOSTILE]: HOSTILE }
      const hostile = { who: HOSTILE, kind: HOSTILE, target: HOSTILE, details }
      const json = { acts: acts.map((act: object) => ({ ...act, ...hostile })) }
      return route.fulfill({ response, json })
    })
    await search('')
    await page.getByText(HOSTILE_SHOWN).first().waitFor()
    await expectText(page)
    await page.context().close()
  })

  it('the console shows the enclave that serves, and adds, drains and forgets another', async () => {
    const { page } = await signIn('/enclaves')
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
    const { page } = await signIn('/anchors')
    await page.getByText('pays now').waitFor()
    await page.getByText('following').waitFor()
    // The answer of a gateway in trouble.
    await page.route(/\/v1\/admin\/status$/, async (route) => {
      const response = await route.fetch()
      const status = await response.json()
      Object.assign(status.commits, { state: 'refusing', waiting_calls: 7, fault: HOSTILE })
      Object.assign(status.anchors, { state: 'failing', chain: 'failing', pending: 3 })
      await route.fulfill({ response, json: status })
    })
    await page.getByText('refusing').waitFor()
    await page.getByText(HOSTILE_SHOWN).waitFor()
    await page.getByText('does not answer').waitFor()
    await expectText(page)
    await page.context().close()
  })

  it('the usage is drawn, and is a table too', async () => {
    await ask('to be counted')
    const { page, faults } = await signIn('/limits')
    for (const name of ['Requests', 'Money']) {
      const figure = page.getByRole('figure', { name })
      await figure.locator('canvas').waitFor()
      await page.getByLabel('Of the last').selectOption('24 hours, by hour')
      await figure.getByText('As a table').click()
      await expect.poll(() => figure.getByRole('row').count()).toBe(25)
      const counts = await figure.getByRole('row').last().getByRole('cell').allTextContents()
      expect([name, Number(counts[1]) > 0]).toEqual([name, true])
    }
    const row = page.getByRole('row', { name: /^demo\/.* verified/ }).first()
    expect(Number(await row.getByRole('cell').last().textContent())).toBeGreaterThan(0)
    expect(faults).toEqual([])
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the playground'), () => {
  const send = async (page: Page, question: string) => {
    await page.getByRole('textbox', { name: 'Message' }).fill(question)
    await page.getByRole('button', { name: 'Send' }).click()
  }
  const choose = async (page: Page, model: string) => {
    await page.getByLabel('Model').selectOption('Another model')
    await page.getByLabel('Its id').fill(model)
  }
  /** Expects the development enclave, and chooses a model. */
  const open = async (model = 'demo/echo', options?: Parameters<typeof openPage>[1]) => {
    const opened = await signIn('', service.apiKey, options)
    await opened.page.getByLabel('Drop files here').setInputFiles(service.policyFile)
    await opened.page.getByText('One enclave is as you expect').waitFor()
    await choose(opened.page, model)
    return opened
  }
  const inTheClear = async (page: Page) => {
    await page.getByLabel('Encrypt to the enclave').uncheck()
    await page.getByText('One enclave is as you expect').waitFor()
  }
  const jsonFile = (text: string, name = 'policy.json') => ({
    name,
    mimeType: 'application/json',
    buffer: Buffer.from(text),
  })

  it('the playground sends nothing while nothing is expected, or another enclave than the one that serves', async () => {
    const { page } = await signIn()
    await page.getByRole('button', { name: 'Do not use it' }).click()
    await page.getByText('it is not known who holds the key that signs answers').waitFor()
    await page.getByRole('textbox', { name: 'Message' }).fill('secret')
    expect(await page.getByRole('button', { name: 'Send' }).isDisabled()).toBe(true)
    const { enclaves } = JSON.parse(await readFile(service.policyFile, 'utf8'))
    const measurements = [{ PCR0: '00'.repeat(48) }]
    const other = JSON.stringify({ enclaves: { ...enclaves, measurements } })
    await page.getByLabel('Drop files here').setInputFiles(jsonFile(other))
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
      if (!isEncrypted) await inTheClear(page)
      const question = `${HOSTILE} ${crypto.randomUUID()}`
      await send(page, question)
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
      const proof = await download(page, turn.getByRole('button', { name: 'Save the evidence' }))
      const { record, block } = parseEvidenceBundle(JSON.parse(proof))
      expect(record).toMatchObject({ request: { messages: [{ content: question }] } })
      expect(block).not.toBeNull()
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })

      // The conversation survives a look at another part, and continues.
      await page.getByRole('link', { name: 'Limits and usage', exact: true }).click()
      await page.getByRole('link', { name: 'Playground', exact: true }).click()
      await send(page, 'and again')
      const next = page.getByRole('article', { name: 'Question 2' })
      await next.getByText('Checked, development only').waitFor()
      await page.context().close()
    },
  )

  it.each(SCREENS)(
    'the playground keeps its message box in view, at $width × $height',
    async (viewport) => {
      const { page } = await signIn('', service.apiKey, { viewport })
      const parts = {
        box: page.getByRole('textbox', { name: 'Message' }),
        send: page.getByRole('button', { name: 'Send' }),
        conversation: page.getByRole('region', { name: 'Conversation' }),
        who: page.locator('.who .state').first(),
      }
      await page
        .getByText('One enclave is as this development gateway says.')
        .waitFor({ state: 'attached' })
      await expectInView(page, parts)
      for (const turn of [1, 2, 3]) {
        await send(page, `Question of turn ${turn}`)
        const answer = page.getByRole('article', { name: `Question ${turn}` })
        await answer.getByText('Checked, development only').waitFor()
      }
      await expectInView(page, parts)
      const left = () =>
        parts.conversation.evaluate((log) => log.scrollHeight - log.scrollTop - log.clientHeight)
      await expect.poll(left).toBeLessThan(2)
      await page.context().close()
    },
  )

  it('the playground refuses an answer that the gateway altered, and folds its text away', async () => {
    const { page } = await open('demo/lorem')
    await inTheClear(page)
    await page.route(/\/v1\/verified\/chat\/completions$/, async (route) => {
      const response = await route.fetch()
      const text = await response.text()
      const body = text.replace(/"content":" \w+"/, '"content":" altered"')
      await route.fulfill({ response, body })
    })
    await send(page, 'Write 80 words, lorem')
    const turn = page.getByRole('article', { name: 'Question 1' })
    await turn.getByText(/^. Refused$/).waitFor()
    await turn.getByText('Do not use this answer').waitFor()
    expect(await turn.locator('.checks .state.bad').count()).toBeGreaterThan(0)
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
    await send(page, 'Hello')
    await page.getByText(/^. Refused$/).waitFor()
    await page.context().close()
  })

  it('the playground says what to do when there is no answer, and stops an answer that is coming', async () => {
    const { page } = await open(`demo/${HOSTILE}`)
    await send(page, 'Hello')
    await page.getByRole('article').getByRole('alert').waitFor()
    await expectText(page)
    await page.getByLabel('Its id').fill('demo/lorem')
    const stopped = Promise.withResolvers<void>()
    await page.route(/\/v1\/verified\/chat\/completions$/, async (route) => {
      await stopped.promise
      await route.abort()
    })
    await send(page, 'Write 9 words')
    await page.getByRole('button', { name: 'Stop' }).click()
    await page.getByText(/^. Stopped$/).waitFor()
    stopped.resolve()
    await page.context().close()
  })

  it('the playground takes models and files of any name and size as text', async () => {
    const { page } = await openPage(`${service.url}/console`)
    await page.route(/\/v1\/verified\/models$/, (route) =>
      route.fulfill({ json: { data: [{ id: HOSTILE }, { id: 'x'.repeat(1_000_000) }] } }),
    )
    await enterKey(page)
    const options = page.getByLabel('Model').locator('option')
    await expect.poll(() => options.allTextContents()).toContain(HOSTILE_SHOWN)
    expect((await options.allTextContents()).every(({ length }) => length <= 110)).toBe(true)
    const file = jsonFile(`{"of": "${HOSTILE.replaceAll('"', "'")}"}`, `${HOSTILE}.json`)
    await page.getByLabel('Drop files here').setInputFiles(file)
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

/** The text of the file that a button saves. */
async function download(page: Page, button: Locator): Promise<string> {
  const saved = page.waitForEvent('download')
  await button.click()
  return readFile(await (await saved).path(), 'utf8')
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
