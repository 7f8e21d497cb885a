import type { Page, Route } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import { writeSavedProof } from '#attestation/saved-proof.ts'
import { BROWSER, findBarriers, openPage } from '../support/browser.ts'
import { CHAT_REQUEST, postChat } from '../support/calls.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let notary = ''

beforeAll(async () => {
  service = await useAffidavit()
  // At least two heads: the page compares them.
  for (const _ of [1, 2, 3]) await complete()
  const { logs } = (await (await fetch(`${service.url}/v1/log`)).json()) as {
    readonly logs: readonly { readonly notary: string }[]
  }
  notary = logs[0]?.notary ?? ''
})

/** A verified completion; gives its hash. */
async function complete(): Promise<string> {
  const { url, apiKey: key } = service
  const reply = await postChat({ url, key }, CHAT_REQUEST)
  expect(reply.status).toBe(200)
  return ((await reply.json()) as { readonly hash: string }).hash
}

/** A page on which `alter` changes the gateway's answers to `path`. */
async function alterAnswers(
  page: Page,
  path: RegExp,
  alter: (answer: Altered, url: URL) => unknown,
): Promise<void> {
  await page.route(path, async (route: Route) => {
    try {
      const response = await route.fetch()
      const json = await response.json()
      await route.fulfill({ response, json: alter(json, new URL(route.request().url())) ?? json })
    } catch (fault) {
      // A page that was closed meanwhile needs no answer.
      if (!/closed|disposed/.test(String(fault))) throw fault
    }
  })
}

// biome-ignore lint/suspicious/noExplicitAny: answers are altered at will.
type Altered = any

const HEADS = /\/v1\/log\/0x[0-9a-f]{40}\/heads/
const CONSISTENCY = /\/consistency\?/
const INCLUSION = /\/inclusion\?/

/** Another hash of the same length. */
const flip = (hex: string) => (hex.endsWith('0') ? hex.replace(/0$/, '1') : hex.replace(/.$/, '0'))

const openLog = async (options?: Parameters<typeof openPage>[1]) => {
  const opened = await openPage(`${service.url}/log/${notary}`, options)
  await opened.page.getByRole('heading', { name: 'Enclave' }).waitFor()
  return opened
}

const leavesOf = async (page: Page) =>
  Number((await page.getByTestId('leaves').textContent())?.replaceAll(',', ''))

describe.runIf(BROWSER.isMet)(BROWSER.title('/log/{notary}'), () => {
  it.each([
    ['light', 1280],
    ['dark', 1280],
    ['light', 360],
  ] as const)(
    'the page of a log has no barrier and nothing beyond its width: %s, %i',
    async (colorScheme, width) => {
      const { page, faults, strangers } = await openLog({
        colorScheme,
        viewport: { width, height: 800 },
      })
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
    await page.context().close()
  })

  it("the page of a log checks the enclave's documents by the root that the reader names", async () => {
    const { page } = await openLog()
    const inPanel = page.locator('section[aria-labelledby=enclave]')
    const outcome = (name: string) =>
      inPanel.locator(`[data-check="${name}"]`).getAttribute('data-outcome')
    await page.getByRole('button', { name: 'Do not use them' }).click()
    await expect.poll(() => outcome('attestation document')).not.toBe('passed')
    await nameRoot(page)
    await expect.poll(() => outcome('attestation document')).toBe('passed')
    expect(await outcome('measurements')).toBe('not checked')
    expect(await page.getByText('does not hold', { exact: true }).count()).toBe(0)
    await page.getByRole('button', { name: 'new document' }).click()
    await expect.poll(() => outcome('fresh')).toBe('passed')

    await alterAnswers(page, /\/v1\/attestation/, (answer) => {
      answer.attestation = stale
    })
    const { attestation: stale } = (await (
      await fetch(`${service.url}/v1/attestation?notary=${notary}&nonce=${'00'.repeat(32)}`)
    ).json()) as { readonly attestation: string }
    await page.getByRole('button', { name: 'new document' }).click()
    await expect.poll(() => outcome('fresh')).toBe('failed')
    await page.context().close()
  })

  it('the page of a log says which sizes and leaves are possible when others are asked for', async () => {
    const { page } = await openLog()
    await page.getByLabel('First size').fill('-1')
    await page.getByRole('button', { name: 'Check consistency' }).click()
    await page.getByText(/First size: expected a whole number from 0 to \d+/).waitFor()
    await page.getByLabel('Its hash').fill('abc')
    await page.getByRole('button', { name: 'Check inclusion' }).click()
    await page.getByText('expected 64 hex digits, or nothing').waitFor()
    await page.getByLabel('Its hash').fill('0'.repeat(64))
    await page.getByRole('button', { name: 'Check inclusion' }).click()
    await page.getByText('not the hash that you expect').waitFor()
    // The verdict belongs to the question, not to the changed form.
    await page.getByLabel('Its hash').fill('1'.repeat(64))
    await page.getByText('not the hash that you expect').waitFor({ state: 'detached' })
    await page.context().close()
  })

  it.each<[string, RegExp, (answer: Altered, url: URL) => void, string]>([
    [
      'another root of the first head',
      HEADS,
      ({ heads }, { search }) => {
        if (search.includes('limit=1&')) heads[0].root = flip(heads[0].root)
      },
      'Check consistency',
    ],
    [
      'another signature',
      HEADS,
      ({ heads }, { search }) => {
        if (search.includes('limit=1&')) heads[0].signature = `0x${'5'.repeat(128)}1b`
      },
      'Check consistency',
    ],
    [
      'another hash in the proof of consistency',
      CONSISTENCY,
      (answer) => {
        answer.path[0] = flip(answer.path[0])
      },
      'Check consistency',
    ],
    [
      'a proof of consistency that is left out',
      CONSISTENCY,
      (answer) => {
        answer.path = []
      },
      'Check consistency',
    ],
    [
      'another leaf',
      INCLUSION,
      (answer) => {
        answer.leaf_hash = flip(answer.leaf_hash)
      },
      'Check inclusion',
    ],
    [
      'another hash in the proof of inclusion',
      INCLUSION,
      (answer) => {
        answer.path[0] = flip(answer.path[0])
      },
      'Check inclusion',
    ],
  ])('the page of a log shows %s as what does not hold', async (_, path, alter, button) => {
    const { page } = await openLog()
    await alterAnswers(page, path, alter)
    await page.getByLabel('First size').fill('1')
    await page.getByRole('button', { name: button }).click()
    await page.locator('.verdict .notice.bad').getByText('does not hold').waitFor()
    expect(await page.locator('.verdict .notice.good').count()).toBe(0)
    await page.context().close()
  })

  it('the page of a log checks a time attestation again that came with another text', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    let more = {}
    await alterAnswers(page, HEADS, (answer) => {
      answer.attestations = [{ size: 1, created_at: 5, ...more }]
    })
    await page.goto(`${service.url}/log/${notary}`)
    const times = page.locator('section[aria-labelledby=times]')
    await times.locator('summary').click()
    await times.getByText('expected exactly size, root').waitFor()
    more = { root: 'x', block_number: 1, block_hash: 'x', document: 'x' }
    await times.getByText('expected exactly size, root').waitFor({ state: 'detached' })
    await times.getByText('After block').waitFor()
    await page.context().close()
  })

  it('the page of a log marks a head that its notary did not sign in its row, and keeps nothing from it', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    await alterAnswers(page, HEADS, ({ heads }) => {
      for (const head of heads) head.root = flip(head.root)
    })
    await page.goto(`${service.url}/log/${notary}`)
    await page.getByText('This log does not continue its earlier state.').waitFor()
    expect(await page.locator('.heads .state.bad').count()).toBeGreaterThan(0)
    expect(await page.locator('.heads td:nth-child(3) .state.good').count()).toBe(0)
    expect(await page.evaluate('localStorage.length')).toBe(0)
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('the next visit'), () => {
  it('the next visit checks that the log only grew since the last one', async () => {
    const { page } = await openLog()
    await page.getByText('First visit: there is nothing to compare with yet.').waitFor()
    await complete()
    await page.reload()
    await page.getByText('Since your last visit this log only grew: checked.').waitFor()
    await page.context().close()
  })

  it.each<[string, RegExp, (answer: Altered, url: URL) => unknown]>([
    [
      'a log that was cut',
      HEADS,
      (answer) => {
        answer.heads = answer.heads.slice(-1)
      },
    ],
    [
      'a proof that does not lead there',
      CONSISTENCY,
      (answer) => {
        answer.path[0] = flip(answer.path[0])
      },
    ],
    ['a log for another chain', /\/v1\/log\/0x[0-9a-f]{40}$/, (log) => ({ ...log, chain_id: 1 })],
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
    await page.getByText('This log does not continue its earlier state.').waitFor()
    expect(await page.locator('.growth.bad').count()).toBe(1)
    expect(await readSeen()).toEqual(kept)
    await page.context().close()
  })

  it('the next visit shows another history of the same size in red', async () => {
    const { page } = await openLog()
    await page.evaluate(`
      const name = 'affidavit:seen:${notary}'
      const seen = JSON.parse(localStorage.getItem(name))
      localStorage.setItem(name, JSON.stringify({ ...seen, root: '${'0'.repeat(64)}' }))`)
    await page.reload()
    await page.getByText('This log does not continue its earlier state.').waitFor()
    await page.context().close()
  })

  it('the next visit shows a log in red that the gateway has lost, in the list and by itself', async () => {
    const { page } = await openLog()
    await page.route(/\/v1\/log\/0x[0-9a-f]{40}$/, (route) =>
      route.fulfill({
        status: 404,
        json: { error: { message: 'There is no log of this notary', code: 'not_found' } },
      }),
    )
    await alterAnswers(page, /\/v1\/log\?/, (answer) => {
      answer.logs = []
    })
    await page.goto(`${service.url}/log`)
    await page.getByText('A log is missing.').waitFor()
    await page.goto(`${service.url}/log/${notary}`)
    await page.getByText('This log does not continue its earlier state.').waitFor()
    await page.context().close()
  })

  it('the next visit says "not checked" while no proof is given, not that it holds', async () => {
    const { page } = await openLog()
    await complete()
    await page.route(CONSISTENCY, (route) =>
      route.fulfill({
        status: 503,
        json: { error: { message: 'Overloaded', code: 'overloaded' } },
      }),
    )
    await page.reload()
    await page.getByText('Not checked:').waitFor()
    expect(await page.locator('.growth.good').count()).toBe(0)
    await page.unroute(CONSISTENCY)
    await page.getByText('Since your last visit this log only grew: checked.').waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('what stands in the address'), () => {
  it.each([
    ['0x12', 'Not a notary'],
    [encodeURIComponent('<img src=x onerror=alert(1)>\u202e'), 'Not a notary'],
    ['%ff', 'Not a notary'],
  ])('the page of a log refuses the address %s', async (name, heading) => {
    const { page } = await openPage(`${service.url}/log/${name}`)
    await page.getByRole('heading', { name: heading }).waitFor()
    expect(await page.locator('main img').count()).toBe(0)
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it('the page of a log checks the boot configuration again when the gateway shows another', async () => {
    const { page } = await openLog()
    const check = page.locator('[data-check="boot configuration"]')
    await expect.poll(() => check.first().getAttribute('data-outcome')).toBe('passed')
    await alterAnswers(page, /\/v1\/log\/0x[0-9a-f]{40}$/, (log) => {
      log.boot_configuration.providers = [{ name: 'evil', origin: 'https://evil.example' }]
    })
    await expect.poll(() => check.first().getAttribute('data-outcome')).toBe('failed')
    await page.getByText('its enclave now has another boot configuration').waitFor()
    await page.context().close()
  })

  it('the page of a notary without a log says that the gateway has no log for it', async () => {
    const { page } = await openPage(`${service.url}/log/0x${'1'.repeat(40)}`)
    await page.getByText('This gateway has no log of this notary.').waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('what comes from outside'), () => {
  it('the answers of the gateway are only text on the pages of logs', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    const dialogs: string[] = []
    page.on('dialog', (dialog) => {
      dialogs.push(dialog.message())
      void dialog.dismiss()
    })
    const hostile = `<img src=x onerror=alert(1)><script>alert(2)</script>\u202egnp.exe\u0000${'A'.repeat(2_000_000)}`
    await alterAnswers(page, /\/v1\/log(\/0x[0-9a-f]{40})?(\?|$)/, (answer) => {
      for (const log of answer.logs ?? [answer]) log.boot_configuration.hostile = hostile
    })
    await alterAnswers(page, /\/v1\/attestation/, () => ({ attestation: hostile }))
    await page.goto(`${service.url}/log/${notary}`)
    await page.getByText('The boot configuration: which providers').click()
    await page.getByRole('button', { name: 'new document' }).click()
    await page
      .getByText(/^attestation document/)
      .first()
      .waitFor()
    expect(await page.locator('main img, main script').count()).toBe(0)
    expect(dialogs).toEqual([])
    expect((await page.locator('main').textContent())?.length).toBeLessThan(100_000)
    expect(await page.locator('main').textContent()).not.toContain('\u202e')
    await page.context().close()
  })

  it("an answer about a log with a member of the wrong form is refused by the member's name", async () => {
    const { page } = await openPage(`${service.url}/docs`)
    await alterAnswers(page, HEADS, (answer) => {
      answer.heads[0].anchor.tx_hash = 'javascript:alert(1)'
    })
    await page.goto(`${service.url}/log/${notary}`)
    await page.getByText(/expected tx_hash to be 0x and 64 lower-case hex digits/).waitFor()
    await page.context().close()
  })
})

describe.runIf(BROWSER.isMet)(BROWSER.title('/log'), () => {
  it('the page /log lists the logs, each with its enclave and newest anchor, and leads to them', async () => {
    const { page } = await openPage(`${service.url}/log`)
    const card = page.getByRole('article').filter({ hasText: notary })
    await card.getByText('in use').waitFor()
    await card.getByRole('link', { name: notary }).click()
    await page.getByRole('heading', { name: /^Log of/ }).waitFor()
    await page.context().close()
  })

  it('the page /log shows a log that is empty, and the others when one cannot be read', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    const empty = `0x${'e'.repeat(40)}`
    await alterAnswers(page, /\/v1\/log\?/, (answer) => {
      const [log] = answer.logs
      const fresh = { ...log, notary: empty, size: 0, head: null, attestation_sha256: null }
      answer.logs = [fresh, { ...log, size: 'many' }, log]
    })
    await page.goto(`${service.url}/log`)
    await page.getByRole('article').filter({ hasText: empty }).waitFor()
    await page.getByRole('article').filter({ hasText: notary }).waitFor()
    await page.getByText('One log in the list cannot be read.').waitFor()
    expect(await page.getByRole('alert').count()).toBe(1)
    await page.context().close()
  })

  it("the page /log looks anchors up where the reader says, and takes no address but the web's", async () => {
    const { page } = await openPage(`${service.url}/log`)
    await page.getByText('Look anchors up in a block explorer').click()
    const field = page.getByLabel('Address of a transaction')
    for (const unfit of [
      'javascript:alert({tx})',
      'https://explorer.example/',
      'https://{tx}.example/',
    ]) {
      await field.fill(unfit)
      await page.getByText('is not used: it must be').waitFor()
      expect(await page.getByRole('link', { name: 'Look up transaction' }).count()).toBe(0)
    }
    await field.fill('https://explorer.example/tx/{tx}')
    const link = page.getByRole('link', { name: 'Look up transaction' }).first()
    expect(await link.getAttribute('href')).toMatch(
      /^https:\/\/explorer\.example\/tx\/0x[0-9a-f]{64}$/,
    )
    expect(await link.getAttribute('rel')).toBe('noreferrer noopener')
    await page.reload()
    await link.waitFor()
    await page.context().close()
  })
})

/** Adds up the layout shifts that no input caused. */
const WATCH_SHIFTS = `
  globalThis.shifted = 0
  new PerformanceObserver((list) => {
    for (const { value, hadRecentInput } of list.getEntries())
      if (!hadRecentInput) globalThis.shifted += value
  }).observe({ type: 'layout-shift' })`

describe.runIf(BROWSER.isMet)(BROWSER.title('/'), () => {
  it('the home page says how the service is', async () => {
    const { page } = await openPage(service.url)
    await page.getByText('Answers with evidence are served.').waitFor()
    await page.getByText('demo/echo').first().waitFor()
    await page.context().close()
  })

  it('the home page names the parts that fail, and what still works', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    await page.route('**/readyz', (route) =>
      route.fulfill({
        status: 503,
        json: {
          error: { message: 'Not ready: database', code: 'not_ready' },
          status: 'failing',
          failing: ['database'],
          chain: { status: 'failing', anchors_waiting: 1_234 },
        },
      }),
    )
    await page.goto(service.url)
    await page.getByText('No answers with evidence now: the database does not answer.').waitFor()
    expect(await page.locator('.figures').textContent()).toContain('1,234 waiting')
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it('the home page takes the name of a model for text', async () => {
    const { page } = await openPage(`${service.url}/docs`)
    const id = `<img src=x onerror=alert(1)>\u202e'$(touch /tmp/x)'`
    await alterAnswers(page, /\/v1\/verified\/models/, ({ data }) => {
      data[0].id = id
    })
    await page.goto(service.url)
    await page.getByText('<img src=x').first().waitFor()
    expect(await page.locator('main img').count()).toBe(0)
    expect(await page.locator('main').textContent()).not.toContain('\u202e')
    await page.context().close()
  })
})

const EVIDENCE = /\/v1\/evidence\//
const openCompletion = (hash: string) => openPage(`${service.url}/c/${hash}`)
/** The outcome of a check, whether or not its link is open. */
const outcomeOf = (page: Page, name: string) =>
  page.locator(`[data-check="${name}"]`).getAttribute('data-outcome')

describe.runIf(BROWSER.isMet)(BROWSER.title('/c/{hash}'), () => {
  it('the page of a completion checks what is public, and has no barrier', async () => {
    const hash = await complete()
    for (const [colorScheme, width] of [
      ['light', 1280],
      ['dark', 360],
    ] as const) {
      const { page, faults, strangers } = await openPage(`${service.url}/c/${hash}`, {
        colorScheme,
        viewport: { width, height: 800 },
      })
      await expect.poll(() => outcomeOf(page, 'receipt in log')).toBe('passed')
      expect(await outcomeOf(page, 'signature')).toBe('passed')
      expect(await outcomeOf(page, 'request hash')).toBe('not checked')
      // The development gateway says it; without its word, the root is unknown.
      expect(await outcomeOf(page, 'attestation document')).toBe('passed')
      await page.getByRole('button', { name: 'Do not use them' }).click()
      await expect.poll(() => outcomeOf(page, 'attestation document')).not.toBe('passed')
      for (const summary of await page.locator('summary').all()) await summary.click()
      expect(await findBarriers(page)).toEqual([])
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(width)
      expect({ faults, strangers }).toEqual({ faults: [], strangers: [] })
      await page.context().close()
    }
  })

  it.each<[string, (bundle: Altered) => void, string]>([
    [
      'another signature',
      ({ record }) => (record.signature = flipEarly(record.signature)),
      'signature',
    ],
    ['another receipt', ({ record }) => (record.receipt.finished_at += 1), 'receipt in log'],
    ['another root', ({ record }) => (record.log.root = flip(record.log.root)), 'receipt in log'],
    [
      'another transaction',
      (bundle) => (bundle.transaction = flip(bundle.transaction)),
      'transaction hash',
    ],
    [
      'another configuration',
      (bundle) => (bundle.boot_configuration.more = 1),
      'boot configuration',
    ],
  ])('the page of a completion shows %s where it breaks', async (_, alter, check) => {
    const hash = await complete()
    const { page } = await openPage(`${service.url}/docs`)
    await alterAnswers(page, EVIDENCE, (bundle) => {
      alter(bundle)
    })
    await page.goto(`${service.url}/c/${hash}`)
    await expect.poll(() => outcomeOf(page, check)).toBe('failed')
    await page.context().close()
  })

  it('a completion is consistent under the root that the reader names, and its page leads to the log', async () => {
    const { page } = await openCompletion(await complete())
    await expectRoot(page)
    await page.getByText('Nothing failed, but this was not checked').waitFor()
    await page.getByRole('link', { name: notary }).click()
    await page.getByRole('heading', { name: /^Log of/ }).waitFor()
    await page.context().close()
  })

  it('the page of a completion shows the content to a reader with the key, checked against the hashes', async () => {
    const { page, strangers } = await openCompletion(await complete())
    await expectRoot(page)
    await page.getByLabel('API key').fill('afd_of_somebody_else')
    await page.getByRole('button', { name: 'Show the content' }).click()
    await page.getByText('Sign in with another API key.').waitFor()
    expect(await page.getByText('You said: hello').count()).toBe(0)
    await page.getByLabel('API key').fill(service.apiKey)
    await page.getByRole('button', { name: 'Show the content' }).click()
    await page.getByText('[demonstration] You said: hello').first().waitFor()
    expect(await outcomeOf(page, 'response hash')).toBe('passed')
    expect(
      await page.evaluate('JSON.stringify([localStorage, sessionStorage, document.cookie])'),
    ).not.toContain(service.apiKey)
    expect(strangers).toEqual([])
    await page.context().close()
  })

  it('the page of a completion shows no content that has not the hash, key or not', async () => {
    const { page } = await openCompletion(await complete())
    await expectRoot(page)
    await alterAnswers(page, /\/evidence$/, ({ record }) => {
      record.response.choices[0].message.content = 'never answered'
    })
    await page.getByLabel('API key').fill(service.apiKey)
    await page.getByRole('button', { name: 'Show the content' }).click()
    await page.locator('[data-verdict=invalid]').waitFor()
    expect(await outcomeOf(page, 'response hash')).toBe('failed')
    expect(await page.getByText('never answered').count()).toBe(0)
    await page.context().close()
  })

  it('the page of a completion compares what its caller kept, in the page', async () => {
    const request = { ...CHAT_REQUEST, messages: [{ role: 'user', content: 'kept by me alone' }] }
    const reply = await postChat({ url: service.url, key: service.apiKey }, request)
    const answer = (await reply.json()) as JsonObject
    const proof = writeSavedProof({ request, answer: { kind: 'whole', answer } })
    const drop = (page: Page, text: string) =>
      page.getByLabel('Saved proof, or the answer').setInputFiles({
        name: 'proof.json',
        mimeType: 'application/json',
        buffer: Buffer.from(text),
      })
    const { page } = await openCompletion(String(answer.hash))
    await expectRoot(page)
    const sent: string[] = []
    page.on('request', (asked) => sent.push(asked.method()))
    await drop(page, proof)
    await page.getByText('You said: kept by me alone').first().waitFor()
    expect(await outcomeOf(page, 'answer given')).toBe('passed')
    expect(sent.filter((method) => method !== 'GET')).toEqual([])

    await drop(page, proof.replaceAll('kept by me', 'kept by you'))
    await page.locator('[data-verdict=invalid]').waitFor()
    expect(await outcomeOf(page, 'answer given')).toBe('failed')
    await drop(page, '<html>')
    await page.locator('[data-verdict=refused]').waitFor()
    await page.getByRole('button', { name: 'Remove it' }).click()
    await page.locator('[data-verdict=consistent]').waitFor()
    await page.context().close()
  })

  it('the page of a completion refuses the evidence of another completion, also valid evidence', async () => {
    const [hash, other] = [await complete(), await complete()]
    const { page } = await openPage(`${service.url}/docs`)
    const evidence = await (await fetch(`${service.url}/v1/evidence/${other}`)).json()
    await page.route(EVIDENCE, (route) => route.fulfill({ json: evidence }))
    await page.goto(`${service.url}/c/${hash}`)
    await page.getByText('This is the evidence of another completion.').waitFor()
    expect(await page.locator('.chain').count()).toBe(0)
    await page.context().close()
  })

  it.each([
    ['0x12', 'Not a completion'],
    [encodeURIComponent('<img src=x onerror=alert(1)>\u202e'), 'Not a completion'],
  ])('the page of a completion refuses the address %s', async (name, heading) => {
    const { page } = await openCompletion(name)
    await page.getByRole('heading', { name: heading }).waitFor()
    expect(await page.locator('main img').count()).toBe(0)
    expect(await findBarriers(page)).toEqual([])
    await page.context().close()
  })

  it('the page of a completion says what to do about an unknown hash, and evidence that is not public', async () => {
    const { page } = await openCompletion('1'.repeat(64))
    await page.getByText('Check the hash: it may belong to another gateway').waitFor()
    await page.route(EVIDENCE, (route) =>
      route.fulfill({
        status: 403,
        json: { error: { message: 'Only with a key', code: 'evidence_restricted' } },
      }),
    )
    await page.reload()
    await page.getByText('Enter an API key that may read it, below.').waitFor()
    await page.getByLabel('API key').waitFor()
    await page.context().close()
  })

  it('the answers of the gateway are only text on the page of a completion', async () => {
    const hash = await complete()
    const { page } = await openPage(`${service.url}/docs`)
    const hostile = `<img src=x onerror=alert(1)>\u202e${'A'.repeat(2_000_000)}`
    await alterAnswers(page, EVIDENCE, ({ record }) => {
      record.receipt.provider.name = hostile
      record.receipt.model.requested = hostile
    })
    await page.goto(`${service.url}/c/${hash}`)
    await expect.poll(() => outcomeOf(page, 'receipt in log')).toBe('failed')
    expect(await page.locator('main img').count()).toBe(0)
    expect((await page.locator('main').textContent())?.length).toBeLessThan(100_000)
    expect(await page.locator('main').textContent()).not.toContain('\u202e')
    await page.context().close()
  })
})

/** Not the last byte, which has a special form. */
const flipEarly = (hex: string) => `0x${hex[2] === '1' ? '2' : '1'}${hex.slice(3)}`

/** Makes the page trust the root of the service's development enclave. */
async function nameRoot(page: Page): Promise<void> {
  const panel = page.locator('summary', { hasText: 'What you expect' })
  await panel.click()
  await page.getByLabel('Trust these roots').setInputFiles(service.rootFile)
  await page.getByRole('button', { name: 'Check by this' }).click()
  await panel.click()
}

/** The same, until a completion is consistent by that root. */
async function expectRoot(page: Page): Promise<void> {
  await nameRoot(page)
  await page.locator('[data-verdict=consistent]').waitFor()
}
