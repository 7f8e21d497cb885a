import { readFile, writeFile } from 'node:fs/promises'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openDatabase } from '#src/storage/database.ts'
import { BROWSER, openPage } from '../support/browser.ts'
import { dumpTables, holdsText } from '../support/dump-tables.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { walkPage } from './walk.ts'

const PLANTED = 'a planted question 4e1c'
const REASON = 'asked for in ticket 81'
/** The hash of a completion that the database lacks. */
const LACKED = '0'.repeat(64)

let machine: Machine

beforeAll(async () => {
  machine = await startMachine()
})
afterAll(() => machine.stop())

const outcomeOf = (page: Page, name: string) =>
  page.locator(`[data-check="${name}"]`).getAttribute('data-outcome')

/** What `/c/HASH` shows to each visitor. */
async function readPublicPage(hash: string): Promise<readonly (string | null)[]> {
  const { page } = await openPage(`${machine.gateways[0].origin}/c/${hash}`)
  await expect.poll(() => outcomeOf(page, 'receipt in log')).toBe('passed')
  const shown = await Promise.all(
    ['signature', 'request hash', 'response hash', 'hash'].map((name) => outcomeOf(page, name)),
  )
  expect(await page.locator('main').textContent()).not.toContain(PLANTED)
  await page.context().close()
  return shown
}

/** The console's history, as its owner sees it. */
async function readHistory(key: string): Promise<string> {
  const { page } = await openPage(`${machine.gateways[0].origin}/console/history`)
  await page.getByLabel('API key').fill(key)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page
    .getByRole('button', { name: /^Details of/ })
    .first()
    .click()
  await page.getByRole('dialog').waitFor()
  const text = await page.locator('main').textContent()
  await page.context().close()
  return text ?? ''
}

it('the runbook for erasing is followed, and audit, pages and the database then say what they should', async () => {
  const { origin } = machine.gateways[0]
  const made = await runCli(['keys', 'create', '--account', 'customer', '--json'], {
    variables: { DATABASE_URL: machine.postgres.url },
  })
  const { key } = JSON.parse(made.stdout) as { readonly key: string }
  const one = await machine.complete({ content: `${PLANTED}: one` })
  const theirs = [
    await machine.complete({ content: `${PLANTED}: two`, key }),
    await machine.complete({ content: `${PLANTED}: three`, key }),
  ]
  const kept = await machine.complete({ content: 'what stays' })
  for (const { hash } of [one, ...theirs])
    await until('its block is known', async () => {
      const reply = await fetch(`${origin}/v1/evidence/${hash}`)
      return reply.ok && ((await reply.json()) as { block: unknown }).block !== null
    })
  const before = BROWSER.isMet ? await readPublicPage(one.hash) : []
  if (BROWSER.isMet) expect(await readHistory(key)).toContain(`${PLANTED}: two`)

  const variables = {
    ...machine.walking.variables,
    AFFIDAVIT_API_KEY: machine.key,
    HASH: one.hash,
    ACCOUNT: 'customer',
    REASON,
    TRUST: `--root ${machine.rootFile} --any-measurement`,
  }
  await walkPage('erase-content', { ...machine.walking, variables }, async (walk) => {
    await walk.section('Before you begin')
    await walk.section('Erase one completion')
    // A restore erases again what is recorded here, and nothing else.
    const recorded = walk.place('/var/backups/affidavit/erasures')
    const first = await readFile(recorded, 'utf8')
    expect(first).toBe(`record\t${one.hash}\t${REASON}\n`)
    // A restored backup lacks completions that were made and erased after it.
    await writeFile(recorded, `record\t${LACKED}\t${REASON}\n${first}`)
    await walk.section('Erase an account')
    const repeated = await walk.section('Where it still is')
    expect(repeated.at(-1)?.output).toContain(`not erased: record ${LACKED}\nContent of 0 records`)
    expect(repeated.at(-1)?.output).toContain('Content of account customer')
    await walk.rest()
  })

  for (const { hash } of [one, ...theirs])
    expect(await machine.readRecord(hash)).toMatchObject({
      request: null,
      response: null,
      erased: { by: 'operator', reason: REASON },
    })
  expect(await machine.readRecord(kept.hash)).not.toHaveProperty('erased')
  const database = await openDatabase({ url: machine.postgres.url })
  const dump = await dumpTables(database)
  await database.close()
  expect(holdsText(dump, PLANTED)).toBe(false)
  expect(holdsText(dump, 'what stays')).toBe(true)
  if (!BROWSER.isMet) return
  expect(await readPublicPage(one.hash)).toEqual(before)
  expect(before).toEqual(['passed', 'not checked', 'not checked', 'passed'])
  const history = await readHistory(key)
  expect(history).not.toContain(PLANTED)
  expect(history).toMatch(new RegExp(`Erased by the operator on .*: ${REASON}`))
})
