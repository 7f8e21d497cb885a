import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { saveEvidence, writeEvidence } from '#attestation/evidence/create-evidence.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { CHAT_REQUEST, postChat } from '../support/calls.ts'
import { expectInView, SCREENS } from '../support/in-view.ts'
import { type Altered, alterAnswers, WATCH_SHIFTS } from '../support/page-scripts.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

type Anchor = {
  readonly tx_hash: string
  readonly state: string
  readonly block_number: number
  readonly block_hash: string
}
type Head = { readonly size: number; readonly anchor: Anchor }
type Answer = { readonly hash: string; readonly receipt: { readonly index: number } }

/** Enough answers for more than one page of leaves and heads. */
const ANSWERS = 12
const HOSTILE = '<img src=x onerror=alert(1)>\u202e'

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
async function complete(request: object = CHAT_REQUEST): Promise<Answer> {
  const reply = await postChat({ url: service.url, key: service.apiKey }, request)
  expect(reply.status).toBe(200)
  return (await reply.json()) as Answer
}

/** Reads without a key. */
async function read<Json>(path: string): Promise<Json> {
  return (await (await fetch(service.url + path)).json()) as Json
}

const HEADS = /\/v1\/log\/0x[0-9a-f]{40}\/heads/
const LOG = /\/v1\/log\/0x[0-9a-f]{40}$/
const CONSISTENCY = /\/consistency\?/
const INCLUSION = /\/inclusion\?/
const EVIDENCE = /\/v1\/evidence\//
const FIND = /\/v1\/find/

/** Another hash of the same length. */
const flip = (hex: string) => (hex.endsWith('0') ? hex.replace(/0$/, '1') : hex.replace(/.$/, '0'))
/** Not the last byte, which has a special form. */
const flipEarly = (hex: string) => `0x${hex[2] === '1' ? '2' : '1'}${hex.slice(3)}`

/** The outcome of a check, whether or not its link is open. */
const outcomeOf = (page: Page, name: string) =>
  page.locator(`[data-check="${name}"]`).first().getAttribute('data-outcome')

const openAt = (path: string, options?: Parameters<typeof openPage>[1]) =>
  openPage(`${service.url}${path}`, options)

const openLog = async (fragment = '') => {
  const opened = await openAt(`/log/${notary}${fragment}`)
  await opened.page.getByRole('heading', { name: 'Enclave' }).waitFor()
  return opened
}

/** Opens a page whose gateway answers otherwise from the beginning. */
async function openAltered(path: string, at: RegExp, alter: Parameters<typeof alterAnswers>[2]) {
  const opened = await openAt('/docs')
  await alterAnswers(opened.page, at, alter)
  await opened.page.goto(`${service.url}${path}`)
  return opened
}

async function expectText(page: Page): Promise<void> {
  expect(await page.locator('main img, main script').count()).toBe(0)
  const text = (await page.locator('main').textContent()) ?? ''
  expect(text.length).toBeLessThan(100_000)
  expect(text).not.toContain('\u202e')
}

/** Makes the page trust the root of the service's development enclave. */
async function nameRoot(page: Page): Promise<void> {
  const panel = page.getByText('Your policy: code')
  await panel.click()
  await page.getByLabel('Trust these roots').setInputFiles(service.rootFile)
  await page.getByRole('button', { name: 'Check by this' }).click()
  await panel.click()
}

describe.runIf(BROWSER.isMet)(BROWSER.title('the page of a log'), () => {
  const leavesOf = async (page: Page) =>
    Number((await page.getByTestId('leaves').textContent())?.replaceAll(',', ''))

  it.each([
    ['light', 1280],
    ['dark', 360],
  ] as const)(
    'the page of a log has no barrier and nothing beyond its width: %s, %i',
    async (colorScheme, width) => {
      const viewport = { width, height: 800 }
      const { page, faults, strangers } = await openAt(`/log/${notary}`, { colorScheme, viewport })
      await page.getByRole('heading', { name: 'Enclave' }).waitFor()
      for (const summary of await page.locator('summary').all()) await summary.click()
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    },
  )

  it('the page of a log follows the log as it grows, says so, and moves nothing', async () => {
    const { page } = await openLog()
    const before = await leavesOf(page)
    await page.evaluate(WATCH_SHIFTS)
    await complete()
    await expect.poll(() => leavesOf(page)).toBeGreaterThan(before)
    await expect
      .poll(() => page.getByRole('status').allTextContents())
      .toContainEqual(expect.stringContaining('The log has grown'))
    expect(await page.evaluate('shifted')).toBe(0)

    await page.getByRole('button', { name: 'Pause' }).click()
    const paused = await leavesOf(page)
    await complete()
    await page.getByText('Paused.').waitFor()
    expect(await leavesOf(page)).toBe(paused)
    await page.getByRole('button', { name: 'Go on' }).click()
    await expect.poll(() => leavesOf(page)).toBeGreaterThan(paused)
    await page.context().close()
  })

  it('the page of a log proves two heads consistent and a leaf included, by keyboard alone', async () => {
    const { page } = await openLog()
    await page.getByLabel('First size').focus()
    await page.keyboard.type('1')
    await page.keyboard.press('Enter')
    await page.getByText(/begins with all 1 of the first head/).waitFor()
    await page.getByLabel('Leaf, from 0').focus()
    await page.keyboard.type('1')
    await page.keyboard.press('Enter')
    await page.getByText(/the notary signed the head/).waitFor()
    expect(await page.locator('.heads td:nth-child(3) .state.good').count()).toBeGreaterThan(0)

    await page.getByLabel('First size').fill('-1')
    await page.getByRole('button', { name: 'Check consistency' }).click()
    await page.getByText(/First size: expected a whole number from 0 to \d+/).waitFor()
    await page.getByLabel('Its hash').fill('0'.repeat(64))
    await page.getByRole('button', { name: 'Check inclusion' }).click()
    await page.getByText('not the hash that you expect').waitFor()
    // The verdict belongs to the question, not to the changed form.
    await page.getByLabel('Its hash').fill('1'.repeat(64))
    await page.getByText('not the hash that you expect').waitFor({ state: 'detached' })
    await page.context().close()
  })

  it("the page of a log checks the enclave's documents by the root that the reader names", async () => {
    const { page } = await openLog()
    await page.getByRole('button', { name: 'Do not use it' }).click()
    await expect.poll(() => outcomeOf(page, 'attestation document')).not.toBe('passed')
    await nameRoot(page)
    await expect.poll(() => outcomeOf(page, 'attestation document')).toBe('passed')
    expect(await outcomeOf(page, 'measurements')).toBe('not checked')
    await page.getByRole('button', { name: 'new document' }).click()
    await expect.poll(() => outcomeOf(page, 'fresh')).toBe('passed')
    const { attestation: stale } = await read<{ attestation: string }>(
      `/v1/attestation?notary=${notary}&nonce=${'00'.repeat(32)}`,
    )
    await alterAnswers(page, /\/v1\/attestation/, (reply) => {
      reply.attestation = stale
    })
    await page.getByRole('button', { name: 'new document' }).click()
    await expect.poll(() => outcomeOf(page, 'fresh')).toBe('failed')

    // It checks the configuration again when the gateway shows another.
    await expect.poll(() => outcomeOf(page, 'boot configuration')).toBe('passed')
    await alterAnswers(page, LOG, (log) => {
      log.boot_configuration.providers = [{ name: 'evil', origin: 'https://evil.example' }]
    })
    await expect.poll(() => outcomeOf(page, 'boot configuration')).toBe('failed')
    await page.getByText('its enclave now has another boot configuration').waitFor()
    await page.context().close()
  })

  it.each<[string, RegExp, (answer: Altered, url: URL) => void, string]>([
    [
      'another signature of the first head',
      HEADS,
      ({ heads }, { search }) => {
        if (search.includes('limit=1&')) heads[0].signature = `0x${'5'.repeat(128)}1b`
      },
      'Check consistency',
    ],
    [
      'another hash in the proof of consistency',
      CONSISTENCY,
      (proof) => (proof.path[0] = flip(proof.path[0])),
      'Check consistency',
    ],
    [
      'another leaf',
      INCLUSION,
      (proof) => (proof.leaf_hash = flip(proof.leaf_hash)),
      'Check inclusion',
    ],
  ])('the page of a log shows %s as what does not hold', async (_, path, alter, button) => {
    const { page } = await openLog()
    await alterAnswers(page, path, (reply, url) => void alter(reply, url))
    await page.getByLabel('First size').fill('1')
    await page.getByRole('button', { name: button }).click()
    await page.locator('.verdict .notice.bad').getByText('does not hold').waitFor()
    expect(await page.locator('.verdict .notice.good').count()).toBe(0)
    await page.context().close()
  })

  it('the page of a log marks heads that its notary did not sign, and keeps nothing from them', async () => {
    const { page } = await openAltered(`/log/${notary}`, HEADS, ({ heads }) => {
      for (const one of heads) one.root = flip(one.root)
    })
    await page.getByText('This log does not continue its earlier state.').waitFor()
    expect(await page.locator('.heads .state.bad').count()).toBeGreaterThan(0)
    expect(await page.locator('.heads td:nth-child(3) .state.good').count()).toBe(0)
    expect(await page.evaluate('localStorage.length')).toBe(0)
    await page.context().close()
  })

  it('the page of a log checks a time attestation again that came with another text', async () => {
    let more = {}
    const { page } = await openAltered(`/log/${notary}`, HEADS, (reply) => {
      reply.attestations = [{ size: 1, created_at: 5, ...more }]
    })
    const times = page.locator('section[aria-labelledby=times]')
    await times.locator('summary').click()
    await times.getByText('expected exactly size, root').waitFor()
    more = { root: 'x', block_number: 1, block_hash: 'x', document: 'x' }
    await times.getByText('After block').waitFor()
    await page.context().close()
  })

  it('the leaves of a log are listed newest first, in pages, and name no answer in public', async () => {
    const { page } = await openLog()
    const rows = page.locator('[id^=leaf-]')
    await rows.first().waitFor()
    const newest = await rows.evaluateAll((all) => all.map(({ id }) => id))
    expect(newest).toHaveLength(10)
    const size = Number(newest[0]?.replace('leaf-', '')) + 1
    expect(newest).toEqual(newest.map((_, at) => `leaf-${size - 1 - at}`))
    expect(await page.locator('[id^=leaf-] a[href^="/c/"]').count()).toBe(0)
    await page.getByRole('button', { name: 'Older leaves' }).click()
    await page.locator(`#leaf-${size - 11}`).waitFor()
    await page.getByRole('button', { name: 'Newest leaves' }).click()
    await page.locator(`#leaf-${size - 1}`).waitFor()

    // By the address, on whichever page they are.
    await page.evaluate(`location.hash = '#leaf-0'`)
    await page.locator('#leaf-0[aria-current]').waitFor()
    await page
      .locator('#leaf-0')
      .getByRole('link', { name: /leaf$|leaves$/ })
      .click()
    await page.locator('[id^=head-][aria-current]').waitFor()
    await page.evaluate(`location.hash = '#leaf-99999999'`)
    await page.getByText('This log has no leaf 99,999,999 yet.').waitFor()
    await page.evaluate(`location.hash = '#head-99999999'`)
    await page.getByText('no signed tree head of exactly 99,999,999 leaves').waitFor()
    await page.evaluate(`location.hash = '#head-<img>'`)
    await page.getByText('no signed tree head of exactly').waitFor({ state: 'detached' })
    await page.context().close()
  })

  it('the leaves of a log lead to answers that the key of the tab may read, and only by their own receipts', async () => {
    const { index } = answer.receipt
    const { page } = await openLog(`#leaf-${index}`)
    const link = page.locator(`#leaf-${index} a[href="/c/${answer.hash}"]`)
    const reloadWith = async (key: string) => {
      await page.evaluate(`sessionStorage.setItem('affidavit-key', '${key}')`)
      await page.reload()
      await page.locator(`#leaf-${index}`).waitFor()
    }
    await reloadWith(service.apiKey)
    await link.waitFor()
    await reloadWith('afd_of_somebody_else')
    await page.getByText('Sign in with another API key.').waitFor()
    expect(await link.count()).toBe(0)
    await alterAnswers(page, /\/records\?/, ({ records }) => {
      for (const { receipt } of records) receipt.finished_at += 1
    })
    await reloadWith(service.apiKey)
    expect(await link.count()).toBe(0)
    await page.context().close()
  })

  it('the page of a log takes answers of the gateway as text, and refuses those of a wrong form', async () => {
    const hostile = `${HOSTILE}<script>alert(2)</script>\u0000${'A'.repeat(2_000_000)}`
    const { page } = await openAt('/docs')
    await alterAnswers(page, /\/v1\/log(\/0x[0-9a-f]{40})?(\?|$)/, (reply) => {
      for (const log of reply.logs ?? [reply]) log.boot_configuration.hostile = hostile
    })
    await alterAnswers(page, /\/v1\/attestation/, () => ({ attestation: hostile }))
    await page.goto(`${service.url}/log/${notary}`)
    await page.getByText('The boot configuration: which providers').click()
    await page.getByRole('button', { name: 'new document' }).click()
    await page
      .getByText(/^attestation document/)
      .first()
      .waitFor()
    await expectText(page)
    await page.context().close()
    const other = await openAltered(`/log/${notary}`, HEADS, ({ heads }) => {
      heads[0].anchor.tx_hash = 'javascript:alert(1)'
    })
    await other.page.getByText(/expected tx_hash to be 0x and 64 lower-case hex digits/).waitFor()
    await other.page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the next visit'), () => {
  const BAD = 'This log does not continue its earlier state.'

  it('the next visit checks that the log only grew, and says "not checked" while no proof is given', async () => {
    const { page } = await openLog()
    await page.getByText('First visit: there is nothing to compare with yet.').waitFor()
    await complete()
    await page.reload()
    await page.getByText('Since your last visit this log only grew: checked.').waitFor()
    const error = { message: 'Overloaded', code: 'overloaded' }
    await page.route(CONSISTENCY, (route) => route.fulfill({ status: 503, json: { error } }))
    await complete()
    await page.reload()
    await page.getByText('Not checked:').waitFor()
    expect(await page.locator('.growth.good').count()).toBe(0)
    await page.context().close()
  })

  it.each<[string, RegExp, (answer: Altered) => unknown]>([
    ['a log that was cut', HEADS, (reply) => ({ ...reply, heads: reply.heads.slice(-1) })],
    [
      'a proof that does not lead there',
      CONSISTENCY,
      (proof) => ({ ...proof, path: proof.path.with(0, flip(proof.path[0])) }),
    ],
    ['a log for another chain', LOG, (log) => ({ ...log, chain_id: 1 })],
  ])('the next visit shows %s in red, and keeps what it saw', async (_, path, alter) => {
    const { page } = await openLog()
    // An open page reads the log again: it sees the same head at a later time.
    const readSeen = async () => {
      const text = await page.evaluate(`localStorage.getItem('affidavit:seen:${notary}')`)
      return { ...JSON.parse(String(text)), atMs: null }
    }
    const kept = await readSeen()
    await alterAnswers(page, path, alter)
    await complete()
    await page.reload()
    await page.getByText(BAD).waitFor()
    expect(await page.locator('.growth.bad').count()).toBe(1)
    expect(await readSeen()).toEqual(kept)
    await page.context().close()
  })

  it('the next visit shows a log in red that the gateway has lost, in the list and by itself', async () => {
    const { page } = await openLog()
    const error = { message: 'There is no log of this notary', code: 'not_found' }
    await page.route(LOG, (route) => route.fulfill({ status: 404, json: { error } }))
    await alterAnswers(page, /\/v1\/log\?/, (reply) => ({ ...reply, logs: [] }))
    await page.goto(`${service.url}/log`)
    await page.getByText('A log is missing.').waitFor()
    await page.goto(`${service.url}/log/${notary}`)
    await page.getByText(BAD).waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the list of logs'), () => {
  it('the list of logs has each with its enclave and newest anchor, also an empty one and beside one that cannot be read', async () => {
    const empty = `0x${'e'.repeat(40)}`
    const { page } = await openAltered('/log', /\/v1\/log\?/, (reply) => {
      const [log] = reply.logs
      const fresh = { ...log, notary: empty, size: 0, head: null, attestation_sha256: null }
      reply.logs = [fresh, { ...log, size: 'many' }, log]
    })
    await page.getByRole('article').filter({ hasText: empty }).waitFor()
    await page.getByText('One log in the list cannot be read.').waitFor()
    expect(await page.getByRole('alert').count()).toBe(1)
    const card = page.getByRole('article').filter({ hasText: notary })
    await card.getByText('in use').waitFor()
    await card.getByRole('link', { name: notary }).click()
    await page.getByRole('heading', { name: /^Log of/ }).waitFor()
    await page.context().close()
  })

  it("the list of logs looks anchors up where the reader says, and takes no address but the web's", async () => {
    const { page } = await openAt('/log')
    await page.getByText('Look anchors up in a block explorer').click()
    const field = page.getByLabel('Address of a transaction')
    const link = page.getByRole('link', { name: 'Look up transaction' }).first()
    for (const unfit of ['javascript:alert({tx})', 'https://x.example/', 'https://{tx}.example/']) {
      await field.fill(unfit)
      await page.getByText('is not used: it must be').waitFor()
      expect(await link.count()).toBe(0)
    }
    await field.fill('https://explorer.example/tx/{tx}')
    expect(await link.getAttribute('href')).toMatch(
      /^https:\/\/explorer\.example\/tx\/0x[0-9a-f]{64}$/,
    )
    expect(await link.getAttribute('rel')).toBe('noreferrer noopener')
    await page.reload()
    await link.waitFor()
    await page.context().close()
  })

  it.each(SCREENS)(
    'the first screen of a log, and of all logs, answers how many, by which enclave, and whether it is confirmed: $width × $height',
    async (viewport) => {
      for (const path of [`/log/${notary}`, '/log']) {
        const { page } = await openAt(path, { viewport })
        const figures = page.locator('dl').filter({ hasText: 'Answers, a leaf each' }).first()
        const parts = {
          answers: figures.getByText('Answers, a leaf each'),
          head: figures.getByText('Newest head'),
          code: figures.getByText('PCR0'),
          confirmed: figures.locator('.state.good', { hasText: '✓ confirmed' }).first(),
          search: page.getByRole('searchbox', { name: 'Look up' }),
        }
        await expectInView(page, parts)
        await page.context().close()
      }
    },
  )
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the page of a completion'), () => {
  const openCompletion = (hash: string) => openAt(`/c/${hash}`)

  it.each([
    ['light', 1280],
    ['dark', 360],
  ] as const)(
    'the page of a completion checks what is public, and has no barrier: %s, %i',
    async (colorScheme, width) => {
      const viewport = { width, height: 800 }
      const path = `/c/${answer.hash}`
      const { page, faults, strangers } = await openAt(path, { colorScheme, viewport })
      await expect.poll(() => outcomeOf(page, 'receipt in log')).toBe('passed')
      expect(await outcomeOf(page, 'signature')).toBe('passed')
      expect(await outcomeOf(page, 'request hash')).toBe('not checked')
      // The development gateway says it; without its word, the root is unknown.
      expect(await outcomeOf(page, 'attestation document')).toBe('passed')
      await page.getByRole('button', { name: 'Do not use it' }).click()
      await expect.poll(() => outcomeOf(page, 'attestation document')).not.toBe('passed')
      for (const summary of await page.locator('summary').all()) await summary.click()
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    },
  )

  it.each<[string, (bundle: Altered) => void, string]>([
    [
      'another signature',
      ({ record }) => (record.signature = flipEarly(record.signature)),
      'signature',
    ],
    ['another root', ({ record }) => (record.log.root = flip(record.log.root)), 'receipt in log'],
    [
      'another transaction',
      (bundle) => (bundle.transaction = flip(bundle.transaction)),
      'transaction hash',
    ],
    [
      'text for the names',
      ({ record }) => (record.receipt.provider.name = HOSTILE),
      'receipt in log',
    ],
  ])('the page of a completion shows %s where it breaks', async (_, alter, check) => {
    const { page } = await openAltered(
      `/c/${answer.hash}`,
      EVIDENCE,
      (bundle) => void alter(bundle),
    )
    await expect.poll(() => outcomeOf(page, check)).toBe('failed')
    await expectText(page)
    await page.context().close()
  })

  it('the page of a completion shows the content to a reader with the key, and only what has the hash', async () => {
    const { hash } = await complete()
    const { page, strangers } = await openCompletion(hash)
    await nameRoot(page)
    await page.locator('[data-verdict=incomplete]').waitFor()
    const show = async (key: string) => {
      await page.getByLabel('API key').fill(key)
      await page.getByRole('button', { name: 'Show the content' }).click()
    }
    await show('afd_of_somebody_else')
    await page.getByText('Sign in with another API key.').waitFor()
    expect(await page.getByText('You said: hello').count()).toBe(0)
    await show(service.apiKey)
    await page.getByText('[demonstration] You said: hello').first().waitFor()
    expect(await outcomeOf(page, 'response hash')).toBe('passed')
    expect(
      await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie])'),
    ).not.toContain(service.apiKey)
    expect(strangers).toEqual([])

    await alterAnswers(page, /\/evidence$/, ({ record }) => {
      record.response.choices[0].message.content = 'never answered'
    })
    await page.reload()
    await show(service.apiKey)
    await page.locator('[data-verdict=invalid]').waitFor()
    expect(await outcomeOf(page, 'response hash')).toBe('failed')
    expect(await page.getByText('never answered').count()).toBe(0)
    await page.context().close()
  })

  it('the page of a completion compares what its caller kept, in the page', async () => {
    const request = { ...CHAT_REQUEST, messages: [{ role: 'user', content: 'kept by me alone' }] }
    const kept = (await complete(request)) as unknown as JsonObject
    const { boot_configuration: configuration } = await read<{ boot_configuration: JsonObject }>(
      `/v1/evidence/${kept.hash}`,
    )
    const proof = writeEvidence(
      saveEvidence(
        { request, answer: { kind: 'whole', answer: kept } },
        { configuration, unanswered: [] },
      ),
    )
    const { page } = await openCompletion(String(kept.hash))
    const drop = (text: string) =>
      page.getByLabel('The evidence that you saved, or the answer').setInputFiles({
        name: 'proof.json',
        mimeType: 'application/json',
        buffer: Buffer.from(text),
      })
    await nameRoot(page)
    await page.locator('[data-verdict=incomplete]').waitFor()
    const sent: string[] = []
    page.on('request', (asked) => sent.push(asked.method()))
    await drop(proof)
    await page.getByText('You said: kept by me alone').first().waitFor()
    expect(await outcomeOf(page, 'answer given')).toBe('passed')
    await drop(proof.replaceAll('kept by me', 'kept by you'))
    await page.locator('[data-verdict=invalid]').waitFor()
    expect(await outcomeOf(page, 'answer given')).toBe('failed')
    await drop('<html>')
    await page.locator('[data-verdict=refused]').waitFor()
    await page.getByRole('button', { name: 'Remove it' }).click()
    await page.locator('[data-verdict=incomplete]').waitFor()
    expect(sent.filter((method) => method !== 'GET')).toEqual([])
    await page.context().close()
  })

  it('the page of a completion refuses evidence of another completion, and says what to do without any', async () => {
    const { hash: other } = await complete()
    const evidence = await read<object>(`/v1/evidence/${other}`)
    const { page } = await openAltered(`/c/${answer.hash}`, EVIDENCE, () => evidence)
    await page.getByText('This is the evidence of another completion.').waitFor()
    expect(await page.locator('.chain').count()).toBe(0)
    await page.unrouteAll()
    await page.goto(`${service.url}/c/${'1'.repeat(64)}`)
    await page.getByText('Check the hash: it may belong to another gateway').waitFor()
    const error = { message: 'Only with a key', code: 'evidence_restricted' }
    await page.route(EVIDENCE, (route) => route.fulfill({ status: 403, json: { error } }))
    await page.reload()
    await page.getByText('Enter an API key that may read it, below.').waitFor()
    await page.context().close()
  })

  it.each([
    ['/log/0x12', 'Not a notary'],
    [`/log/${encodeURIComponent(HOSTILE)}`, 'Not a notary'],
    ['/log/%ff', 'Not a notary'],
    [`/log/0x${'1'.repeat(40)}`, 'This gateway has no log of this notary.'],
    ['/c/0x12', 'Not a completion'],
    [`/c/${encodeURIComponent(HOSTILE)}`, 'Not a completion'],
  ])('the address %s of no log and no completion is answered as text', async (path, words) => {
    const { page } = await openAt(path)
    await page.getByText(words).first().waitFor()
    await expectText(page)
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the search'), () => {
  const searchOf = (page: Page) => page.getByRole('searchbox', { name: 'Look up' })
  const search = async (page: Page, text: string) => {
    await searchOf(page).fill(text)
    await page.keyboard.press('Enter')
  }
  const pathOf = (page: Page) => {
    const { pathname, hash } = new URL(page.url())
    return pathname + hash
  }
  const NOTHING = { completion: null, restricted: false, log: null, heads: [], more_heads: false }
  const answerSearch = async (page: Page, json: object, status = 200) => {
    await page.unroute(FIND)
    await page.route(FIND, (route) => route.fulfill({ status, json: { ...NOTHING, ...json } }))
  }

  it.each(SCREENS)(
    'the search leads from a hash to its verdict, and from there to its leaf and to all logs, at $width × $height',
    async (viewport) => {
      const { page, faults, strangers } = await openAt('', { viewport })
      await search(page, ` 0x${answer.hash} `)
      await page.waitForURL(`**/c/${answer.hash}`)
      const verdict = page.locator('[data-verdict=incomplete]')
      const parts = {
        verdict: verdict.getByRole('heading', { name: 'INCOMPLETE development' }),
        unchanged: verdict.getByText('neither was changed since'),
        open: verdict.getByText('not checked: request hash, response hash'),
      }
      await expectInView(page, parts)
      const { index } = answer.receipt
      await page.getByRole('link', { name: `leaf ${index} of ${notary}` }).click()
      const row = page.locator(`#leaf-${index}[aria-current]`)
      const { y = -1, height = 0 } = (await row.boundingBox()) ?? {}
      expect(y >= 0 && y + height <= viewport.height).toBe(true)
      await page.getByRole('link', { name: 'All logs' }).click()
      await page.locator('.card').filter({ hasText: notary }).first().waitFor()
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    },
  )

  it('the search leads from a notary to its log, and from a transaction and a block to the head that is anchored there', async () => {
    const { page } = await openAt('/docs')
    await search(page, notary.slice(2).toUpperCase())
    await page.waitForURL(`**/log/${notary}`)
    const { tx_hash: transaction, block_number: number, block_hash: block } = head.anchor
    const { heads } = await read<{ heads: readonly Head[] }>(`/v1/log/${notary}/heads?limit=1000`)
    const isAlone = heads.filter(({ anchor }) => anchor.block_number === number).length === 1
    for (const text of [transaction, String(number), `#${number}`, block]) {
      await page.goto(service.url)
      await search(page, text)
      if (text !== transaction && !isAlone)
        await page
          .getByRole('status')
          .getByRole('link', { name: `Head of ${head.size.toLocaleString('en')} ` })
          .click()
      await expect.poll(() => pathOf(page)).toBe(`/log/${notary}#head-${head.size}`)
    }
    const row = page.locator(`#head-${head.size}[aria-current]`)
    expect(await row.locator('td:nth-child(4) .state.good').textContent()).toBe('✓ confirmed')

    const several = [3, 4].map((size) => ({ notary, size }))
    await answerSearch(page, { heads: several, more_heads: true })
    await search(page, '7')
    await page.getByText('Found more than these:').waitFor()
    expect(await findBarriers(page)).toEqual([])
    await page.getByRole('link', { name: 'Head of 4 leaves' }).click()
    await page.locator('#head-4, [role=alert]').first().waitFor()
    await page.context().close()
  })

  it.each([
    ['0'.repeat(64), 'no completion with this hash, and no anchor whose transaction'],
    [`0x${'0'.repeat(40)}`, 'This gateway has no log of this notary.'],
    ['999999999', 'No head of the logs here is anchored in block 999999999.'],
  ])('the search for %s says what was not found', async (text, words) => {
    const { page, faults } = await openAt('')
    await search(page, text)
    await page.getByText(words).waitFor()
    await page.getByRole('link', { name: 'See all logs' }).waitFor()
    expect(await findBarriers(page)).toEqual([])
    expect(faults).toEqual([])
    await page.context().close()
  })

  it.each([
    ['', 'Enter a hash, a notary, a transaction or the number of a block.'],
    ['0x12', 'This has 2 hex digits.'],
    ['chatcmpl-abc', 'This looks like the id of an answer.'],
    ['afd_aaaaaaaaaaaaaaaa_secret', 'This looks like an API key, so it was not sent.'],
    [HOSTILE, 'Expected a hash or a transaction (64 hex digits)'],
  ])('the search for %j says what to type instead, and sends no request', async (text, words) => {
    const { page } = await openAt('')
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    await search(page, text)
    await page.getByText(words).waitFor()
    expect(asked.filter((url) => FIND.test(url))).toEqual([])
    // A new text removes the refusal of the text before.
    await searchOf(page).pressSequentially('1')
    await page.getByText(words).waitFor({ state: 'detached' })
    await page.context().close()
  })

  it('the search leads only to pages of this gateway, for any answer', async () => {
    const { page } = await openAt('')
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
    }
    await answerSearch(page, { error: { message: 'Too busy', code: 'overloaded' } }, 503)
    await search(page, '7')
    await page.getByText('Too busy').waitFor()
    await answerSearch(page, { restricted: true })
    await search(page, answer.hash)
    await page.getByText('It shows completions only to accounts.').waitFor()
    await page.getByRole('link', { name: 'Open its page' }).click()
    await page.waitForURL(`**/c/${answer.hash}`)
    await page.context().close()
  })
})

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
    await expect.poll(dragOver).toBe(true)
    await page.dispatchEvent(on, 'drop', { dataTransfer })
  }
  const evidence = async () =>
    await (await fetch(`${service.url}/v1/evidence/${answer.hash}`)).text()

  it('a file that is dropped on any page is checked by /verify, once, and is sent nowhere', async () => {
    const text = await evidence()
    for (const path of ['/', `/log/${notary}`, '/console']) {
      const { page, faults, strangers } = await openAt(path)
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

  it('a file that is dropped where the browser keeps nothing is not lost without a word', async () => {
    const { page } = await openAt('')
    await page.evaluate(`Object.defineProperty(globalThis, 'indexedDB', { value: {
      open() { throw new DOMException('refused', 'SecurityError') } } })`)
    await drop(page, 'main', '{}')
    await page.getByText('This browser does not keep a file between two pages.').waitFor()
    await page.context().close()
  })

  it('a file that is dropped on a saved copy is checked there, and the copy has no search', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'affidavit-copy-'))
    const file = join(folder, 'verify.html')
    await writeFile(file, await (await fetch(`${service.url}/verify/copy`)).text())
    const { page } = await openPage(pathToFileURL(file).href)
    await drop(page, 'h1', await evidence())
    await page.locator('[data-verdict]').waitFor()
    expect(await page.getByRole('searchbox', { name: 'Look up' }).count()).toBe(0)
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
