import type { Locator, Page } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { BROWSER, openPage } from '../support/browser.ts'
import { CHAT_REQUEST, postChat } from '../support/calls.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

/** The most acts of a visitor before the answer is on the screen. */
const ACTS_MAX = 3

const SIZES = [
  [1280, 800],
  [390, 844],
] as const

type Answer = {
  readonly hash: string
  readonly receipt: { readonly index: number; readonly finished_at: number }
}

let service: SharedAffidavit
let answer: Answer
let notary = ''

beforeAll(async () => {
  service = await useAffidavit()
  const reply = await postChat({ url: service.url, key: service.apiKey }, CHAT_REQUEST)
  expect(reply.status).toBe(200)
  answer = (await reply.json()) as Answer
  const found = await read<{ completion: { notary: string } }>(`/v1/find?q=${answer.hash}`)
  notary = found.completion.notary
})

async function read<Json>(path: string): Promise<Json> {
  return (await (await fetch(service.url + path)).json()) as Json
}

/** A visitor on the home page, who clicks and searches a few times and then must see the answer. */
async function visit([width, height]: readonly [number, number]) {
  const { page, faults } = await openPage(service.url, { viewport: { width, height } })
  let acts = 0
  const act = () => expect(++acts).toBeLessThanOrEqual(ACTS_MAX)
  return {
    page,
    click: async (what: Locator) => {
      act()
      await what.click()
    },
    search: async (text: string) => {
      act()
      await page.getByRole('searchbox', { name: 'Look up' }).fill(text)
      await page.keyboard.press('Enter')
    },
    /** Without scrolling. */
    sees: async (what: Locator) => {
      await what.waitFor()
      await expect
        .poll(async () => {
          const box = await what.boundingBox()
          return box !== null && box.y >= 0 && box.y + box.height <= height
        })
        .toBe(true)
    },
    leave: async () => {
      expect(faults).toEqual([])
      await page.context().close()
    },
  }
}

const link = (page: Page, name: string) => page.getByRole('link', { name })

/** The form of the pages: `2026-01-31 12:00:00 UTC`. */
const timeOf = (ms: number) =>
  new Date(ms)
    .toISOString()
    .replace('T', ' ')
    .replace(/\.\d+Z$/, ' UTC')

describe.runIf(BROWSER.isMet)(BROWSER.title('a visitor of the home page'), () => {
  it.each(SIZES)(
    'a visitor finds by one search whether an answer is genuine: %i × %i',
    async (...size) => {
      const { page, search, sees, leave } = await visit(size)
      await search(answer.hash)
      const verdict = page.locator('[data-verdict=consistent]')
      await sees(verdict.getByRole('heading', { name: 'CONSISTENT development' }))
      await sees(verdict.getByText('neither was changed since'))
      await sees(verdict.getByText('not checked: request hash, response hash'))
      await leave()
    },
  )

  it.each(SIZES)(
    'a visitor finds which enclave signed an answer, and when: %i × %i',
    async (...size) => {
      const { page, search, click, sees, leave } = await visit(size)
      await search(answer.hash)
      const signed = `signed this question and this answer at ${timeOf(answer.receipt.finished_at)}`
      await sees(page.locator('[data-verdict]').getByText(signed))
      await click(link(page, `leaf ${answer.receipt.index} of ${notary}`))
      await page.locator(`#leaf-${answer.receipt.index}[aria-current]`).waitFor()
      await page.getByRole('heading', { name: `Log of ${notary}` }).waitFor()
      await click(link(page, 'All logs'))
      const log = page.locator('.card').filter({ has: link(page, notary) })
      const { logs } = await read<{ logs: readonly { notary: string }[] }>('/v1/log')
      expect(logs.map((one) => one.notary)).toContain(notary)
      await sees(log.getByText('PCR0'))
      await leave()
    },
  )

  it.each(SIZES)(
    'a visitor finds how many answers the log of an enclave has: %i × %i',
    async (...size) => {
      const { page, search, sees, leave } = await visit(size)
      const { size: leaves } = await read<{ size: number }>(`/v1/log/${notary}`)
      await search(notary)
      const figure = page.locator('dl > div').filter({ hasText: 'Answers, a leaf each' }).first()
      await sees(figure)
      await expect
        .poll(async () => Number((await figure.locator('dd').textContent())?.replaceAll(',', '')))
        .toBeGreaterThanOrEqual(leaves)
      await leave()
    },
  )

  it.each(SIZES)('a visitor finds why a page says “not checked”: %i × %i', async (...size) => {
    const words = await visit(size)
    await words.click(link(words.page, 'What “not checked” means'))
    await words.sees(words.page.getByText('because something for it is missing'))
    await words.leave()

    const { page, search, click, leave } = await visit(size)
    await search(answer.hash)
    const step = page.locator('[data-link=request]')
    await step.getByText('not checked: request hash, response hash').waitFor()
    await click(step.locator('summary'))
    await step.getByText('Give the request that was sent').waitFor()
    await leave()
  })
})
