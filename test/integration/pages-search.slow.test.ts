import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { CHAT_REQUEST, postChat } from '../support/calls.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

type Anchor = {
  readonly tx_hash: string
  readonly state: string
  readonly block_number: number
  readonly block_hash: string
}
type Head = { readonly size: number; readonly anchor: Anchor }
type Answer = {
  readonly hash: string
  readonly public_key: string
  readonly tx_hash: string
  readonly receipt: { readonly index: number }
}

/** Enough answers for more than one page of leaves and heads. */
const ANSWERS = 12

let service: SharedAffidavit
let notary = ''
let answer: Answer
/** A confirmed head. */
let head: Head

beforeAll(async () => {
  service = await useAffidavit()
  for (let count = 0; count < ANSWERS; count++) answer = await complete()
  notary = (await read<{ logs: readonly { notary: string }[] }>('/v1/log')).logs[0]?.notary ?? ''
  head = await vi.waitUntil(
    async () => {
      const { heads } = await read<{ heads: readonly Head[] }>(`/v1/log/${notary}/heads`)
      return heads.find(({ anchor }) => anchor.state === 'confirmed')
    },
    { timeout: 30_000, interval: 200 },
  )
})

/** A verified completion. */
async function complete(): Promise<Answer> {
  const { url, apiKey: key } = service
  const reply = await postChat({ url, key }, CHAT_REQUEST)
  expect(reply.status).toBe(200)
  return (await reply.json()) as Answer
}

/** Reads without a key. */
async function read<Json>(path: string): Promise<Json> {
  return (await (await fetch(service.url + path)).json()) as Json
}

const SIZES = [
  [1280, 800],
  [390, 844],
] as const

const searchOf = (page: Page) => page.getByRole('searchbox', { name: 'Look up' })

async function search(page: Page, text: string): Promise<void> {
  await searchOf(page).fill(text)
  await page.keyboard.press('Enter')
}

const pathOf = (page: Page) => {
  const { pathname, hash } = new URL(page.url())
  return pathname + hash
}

/** Makes the search answer with this. */
const answerSearch = (page: Page, json: object) =>
  page.route(/\/v1\/find/, (route) =>
    route.fulfill({
      json: {
        completion: null,
        restricted: false,
        log: null,
        heads: [],
        more_heads: false,
        ...json,
      },
    }),
  )

describe.runIf(BROWSER.isMet)(BROWSER.title('the search'), () => {
  it('the search is on the first screen of every page, at both sizes, and makes none wider', async () => {
    for (const path of ['/', '/verify', '/docs', '/console', '/log', `/log/${notary}`])
      for (const [width, height] of SIZES) {
        const { page } = await openPage(service.url + path, { viewport: { width, height } })
        const box = await searchOf(page).boundingBox()
        expect([path, box === null ? null : box.y + box.height < 200]).toEqual([path, true])
        expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(
          width,
        )
        await page.context().close()
      }
  })

  it('the search leads from a hash to its completion, and to its leaf and back', async () => {
    const { page, faults, strangers } = await openPage(service.url)
    await search(page, ` 0x${answer.hash} `)
    await page.waitForURL(`**/c/${answer.hash}`)
    const { index } = answer.receipt
    const link = page.getByRole('link', { name: `leaf ${index} of ${notary}` })
    await page.locator('[data-verdict]').waitFor()
    // A failed check states no facts: the root of a development enclave is unknown.
    if ((await link.count()) === 0) {
      await page.locator('summary', { hasText: 'What you expect' }).click()
      await page.getByLabel('Trust these roots').setInputFiles(service.rootFile)
      await page.getByRole('button', { name: 'Check by this' }).click()
    }
    await link.click()
    await page.waitForURL(`**/log/${notary}#leaf-${index}`)
    const row = page.locator(`#leaf-${index}`)
    await row.waitFor()
    expect(await row.getAttribute('aria-current')).toBe('true')
    expect(await isSeen(page, `leaf-${index}`)).toBe(true)
    await row.locator(`a[href="/c/${answer.hash}"]`).click()
    await page.waitForURL(`**/c/${answer.hash}`)
    expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
    await page.context().close()
  })

  it('the search leads from a notary to its log, and from a transaction to the head that it anchors', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    await search(page, notary.slice(2).toUpperCase())
    await page.waitForURL(`**/log/${notary}`)
    await search(page, head.anchor.tx_hash)
    await expect.poll(() => pathOf(page)).toBe(`/log/${notary}#head-${head.size}`)
    const row = page.locator(`#head-${head.size}`)
    await row.getByText('confirmed').waitFor()
    expect(await row.getAttribute('aria-current')).toBe('true')
    // Green, and with a tick.
    expect(await row.locator('td:nth-child(4) .state.good').textContent()).toBe('✓ confirmed')
    await row.getByRole('link', { name: `leaf ${head.size - 1}` }).click()
    await page.locator(`#leaf-${head.size - 1}[aria-current]`).waitFor()
    await page.context().close()
  })

  it('the search finds what is anchored in a block, by number and by hash, and lists several', async () => {
    const { page } = await openPage(service.url)
    const { block_number, block_hash } = head.anchor
    const { heads } = await read<{ heads: readonly Head[] }>(`/v1/log/${notary}/heads?limit=1000`)
    const inBlock = heads.filter(({ anchor }) => anchor.block_number === block_number)
    for (const text of [String(block_number), `#${block_number}`, block_hash]) {
      await page.goto(service.url)
      await search(page, text)
      if (inBlock.length > 1)
        await page
          .getByRole('status')
          .getByRole('link', { name: `Head of ${head.size.toLocaleString('en')} ` })
          .click()
      await expect.poll(() => pathOf(page)).toBe(`/log/${notary}#head-${head.size}`)
    }

    await answerSearch(page, {
      heads: [3, 4].map((size) => ({ notary, size })),
      more_heads: true,
    })
    await search(page, '7')
    await page.getByText('Found more than these:').waitFor()
    expect(await findBarriers(page)).toEqual([])
    await page.getByRole('link', { name: 'Head of 4 leaves' }).click()
    await page.locator('#head-4, [role=alert]').first().waitFor()
    expect(await page.getByText('Found more than these:').count()).toBe(0)
    await page.context().close()
  })

  it.each([
    ['0'.repeat(64), 'no completion with this hash, and no anchor whose transaction'],
    [`0x${'0'.repeat(40)}`, 'This gateway has no log of this notary.'],
    ['999999999', 'No head of the logs here is anchored in block 999999999.'],
  ])('the search for %s says what was not found', async (text, words) => {
    for (const [width, height] of SIZES) {
      const { page, faults } = await openPage(service.url, { viewport: { width, height } })
      await search(page, text)
      await page.getByText(words).waitFor()
      await page.getByRole('link', { name: 'See all logs' }).waitFor()
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      expect(faults).toEqual([])
      await page.context().close()
    }
  })

  it.each([
    ['', 'Enter a hash, a notary, a transaction or the number of a block.'],
    ['0x12', 'This has 2 hex digits.'],
    ['f'.repeat(63), 'This has 63 hex digits.'],
    ['1'.repeat(20), 'has at most 15 digits. This has 20.'],
    ['chatcmpl-abc', 'This looks like the id of an answer.'],
    ['afd_aaaaaaaaaaaaaaaa_secret', 'This looks like an API key, so it was not sent.'],
    ['<img src=x onerror=alert(1)>', 'Expected a hash or a transaction (64 hex digits)'],
  ])('the search for %j says what to type instead, and sends no request', async (text, words) => {
    const { page } = await openPage(service.url)
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    await search(page, text)
    await page.getByText(words).waitFor()
    expect(asked.filter((url) => url.includes('/v1/find'))).toEqual([])
    // A new text removes the refusal of the text before.
    await searchOf(page).pressSequentially('1')
    await page.getByText(words).waitFor({ state: 'detached' })
    await page.context().close()
  })

  it('the search says that completions are shown only to accounts, and leads to the page that asks for a key', async () => {
    const { page } = await openPage(service.url)
    await answerSearch(page, { restricted: true })
    await search(page, answer.hash)
    await page.getByText('It shows completions only to accounts.').waitFor()
    await page.getByRole('link', { name: 'Open its page' }).click()
    await page.waitForURL(`**/c/${answer.hash}`)
    await page.context().close()
  })

  it('the search leads only to pages of this gateway, for any answer', async () => {
    const { page } = await openPage(service.url)
    for (const found of [
      { log: { notary: 'javascript:alert(1)', size: 1 } },
      { completion: { hash: '../../evil', notary, index: 1 } },
      { heads: [{ notary: '//evil.example', size: 1 }] },
      { heads: 'many' },
    ]) {
      await answerSearch(page, found)
      await search(page, '7')
      await page.getByText("the gateway's answer: expected").waitFor()
      expect(pathOf(page)).toBe('/')
      await page.unroute(/\/v1\/find/)
    }
    await page.route(/\/v1\/find/, (route) =>
      route.fulfill({ status: 503, json: { error: { message: 'Too busy', code: 'overloaded' } } }),
    )
    await search(page, '7')
    await page.getByText('Too busy').waitFor()
    await page.context().close()
  })
})

/** Whether a row is in the visible part of the page. */
const isSeen = (page: Page, id: string) =>
  page.evaluate(`(() => {
    const { top, bottom } = document.getElementById('${id}').getBoundingClientRect()
    return top >= 0 && bottom <= innerHeight
  })()`)

describe.runIf(BROWSER.isMet)(BROWSER.title('leaves of a log'), () => {
  const openLog = async (fragment = '', options: Parameters<typeof openPage>[1] = {}) => {
    const opened = await openPage(`${service.url}/log/${notary}${fragment}`, options)
    await opened.page.locator('[id^=leaf-]').first().waitFor()
    return opened
  }

  it('leaves of a log are listed newest first, in pages, and name no answer in public', async () => {
    const { page } = await openLog()
    const newest = (await page.evaluate(
      "[...document.querySelectorAll('[id^=leaf-]')].map(({ id }) => id)",
    )) as string[]
    expect(newest).toHaveLength(10)
    const size = Number(newest[0]?.replace('leaf-', '')) + 1
    expect(newest).toEqual(newest.map((_, at) => `leaf-${size - 1 - at}`))
    expect(await page.locator('[id^=leaf-] a[href^="/c/"]').count()).toBe(0)
    await page.getByRole('button', { name: 'Older leaves' }).click()
    await page.locator(`#leaf-${size - 11}`).waitFor()
    await page.getByRole('button', { name: 'Newest leaves' }).click()
    await page.locator(`#leaf-${size - 1}`).waitFor()
    await page.context().close()
  })

  it('leaves of a log lead to the answers that the key of the tab may read, and only by their own receipts', async () => {
    const { page } = await openLog()
    const { index } = answer.receipt
    const link = page.locator(`#leaf-${index} a[href="/c/${answer.hash}"]`)
    await page.evaluate(`sessionStorage.setItem('affidavit-key', '${service.apiKey}')`)
    await page.goto(`${service.url}/log/${notary}#leaf-${index}`)
    await page.reload()
    await link.waitFor()

    await page.route(/\/records\?/, async (route) => {
      const response = await route.fetch()
      const json = (await response.json()) as { records: { receipt: { finished_at: number } }[] }
      for (const { receipt } of json.records) receipt.finished_at += 1
      await route.fulfill({ response, json })
    })
    await page.reload()
    await page.locator(`#leaf-${index}`).waitFor()
    expect(await link.count()).toBe(0)
    await page.unroute(/\/records\?/)

    await page.evaluate(`sessionStorage.setItem('affidavit-key', 'afd_of_somebody_else')`)
    await page.reload()
    await page.getByText('Sign in with another API key.').waitFor()
    await page.locator(`#leaf-${index}`).waitFor()
    expect(await link.count()).toBe(0)
    await page.context().close()
  })

  it('leaves of a log and its heads are found by the address, on whichever page they are', async () => {
    const { page } = await openLog('#leaf-0')
    await page.locator('#leaf-0[aria-current]').waitFor()
    expect(await isSeen(page, 'leaf-0')).toBe(true)
    await page
      .locator('#leaf-0')
      .getByRole('link', { name: /leaf$|leaves$/ })
      .click()
    await page.locator('[id^=head-][aria-current]').waitFor()
    await page.evaluate(`location.hash = '#leaf-99999999'`)
    await page.getByText('This log has no leaf 99,999,999 yet.').waitFor()
    await page.evaluate(`location.hash = '#head-99999999'`)
    await page.getByText('no signed head of exactly 99,999,999 leaves').waitFor()
    await page.evaluate(`location.hash = '#head-<img>'`)
    await page.getByText('no signed head of exactly').waitFor({ state: 'detached' })
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it.each(SIZES)(
    'the first screen of a log, and of all logs, answers how many, by which enclave, and whether it is confirmed: %i × %i',
    async (width, height) => {
      const viewport = { width, height }
      for (const path of [`/log/${notary}`, '/log']) {
        const { page } = await openPage(service.url + path, { viewport })
        const figures = page.locator('dl').filter({ hasText: 'Answers, a leaf each' }).first()
        await figures.getByText('PCR0').waitFor()
        for (const words of [
          'Answers, a leaf each',
          'Newest head',
          'in use',
          'PCR0',
          'Log started',
        ])
          expect([words, await isWithin(figures.getByText(words), height)]).toEqual([words, true])
        await figures.getByText('✓ confirmed').waitFor()
        expect(await isWithin(figures.locator('.state.good').first(), height)).toBe(true)
        expect(await isWithin(searchOf(page), height)).toBe(true)
        await page.context().close()
      }
    },
  )
})

async function isWithin(what: ReturnType<Page['locator']>, height: number): Promise<boolean> {
  const box = await what.boundingBox()
  return box !== null && box.y >= 0 && box.y + box.height <= height
}

describe.runIf(BROWSER.isMet)(BROWSER.title('a file that is dropped'), () => {
  const drop = async (page: Page, on: string, text: string) => {
    const dataTransfer = await page.evaluateHandle(`(() => {
      const given = new DataTransfer()
      given.items.add(new File([${JSON.stringify(text)}], 'evidence.json'))
      return given
    })()`)
    // A real drag repeats the event while it lasts; the page may not listen yet when it begins.
    const dragOver = async () => {
      await page.dispatchEvent(on, 'dragover', { dataTransfer })
      return page.getByText('Drop the file. It is checked in this browser').isVisible()
    }
    await expect.poll(dragOver, { timeout: 30_000 }).toBe(true)
    await page.dispatchEvent(on, 'drop', { dataTransfer })
  }
  const evidence = async () =>
    await (await fetch(`${service.url}/v1/evidence/${answer.hash}`)).text()

  it('a file that is dropped on any page is checked by /verify, once, and is sent nowhere', async () => {
    const text = await evidence()
    for (const path of ['/', `/log/${notary}`, '/console']) {
      const { page, faults, strangers } = await openPage(service.url + path)
      const sent: string[] = []
      page.on('request', (request) => sent.push(`${request.method()} ${request.postData() ?? ''}`))
      await drop(page, 'main', text)
      await page.waitForURL('**/verify')
      await page.locator('[data-verdict]').waitFor()
      expect(sent.filter((call) => call !== 'GET ')).toEqual([])
      await page.reload()
      await page.getByRole('heading', { name: 'Verify' }).waitFor()
      expect(await page.locator('[data-verdict]').count()).toBe(0)
      expect(await countKept(page)).toBe(0)
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    }
  })

  it('a file that is dropped anywhere on /verify is checked there', async () => {
    const { page } = await openPage(`${service.url}/verify`)
    await drop(page, 'h1', await evidence())
    await page.locator('[data-verdict]').waitFor()
    await page.context().close()
  })

  it('a file that is dropped where the browser keeps nothing is not lost without a word', async () => {
    const { page } = await openPage(service.url)
    await page.evaluate(`Object.defineProperty(globalThis, 'indexedDB', { value: {
      open() { throw new DOMException('refused', 'SecurityError') } } })`)
    await drop(page, 'main', '{}')
    await page.getByText('This browser does not keep a file between two pages.').waitFor()
    expect(pathOf(page)).toBe('/')
    await page.context().close()
  })

  it('a file that is dropped on a saved copy is checked there, and the copy has no search', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'affidavit-copy-'))
    const file = join(folder, 'verify.html')
    await writeFile(file, await (await fetch(`${service.url}/verify/copy`)).text())
    const { page } = await openPage(pathToFileURL(file).href)
    await drop(page, 'h1', await evidence())
    await page.locator('[data-verdict]').waitFor()
    expect(await searchOf(page).count()).toBe(0)
    await page.context().close()
    await rm(folder, { recursive: true })
  })
})

/** How many files this browser keeps between pages. */
const countKept = (page: Page) =>
  page.evaluate(`new Promise((resolve, reject) => {
    const opening = indexedDB.open('affidavit')
    opening.onerror = () => reject(opening.error)
    opening.onsuccess = () => {
      const counting = opening.result.transaction('dropped').objectStore('dropped').count()
      counting.onsuccess = () => resolve(counting.result)
    }
  })`)
