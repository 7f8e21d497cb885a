import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { relayerAddress } from '#src/chain/sign-anchor.ts'
import { openDatabase } from '#src/storage/database.ts'
import { BROWSER, openPage } from '../support/browser.ts'
import { dumpTables, holdsText } from '../support/dump-tables.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'
import { type Machine, startMachine } from './machine.ts'
import { readSection, walkPage, walkText } from './walk.ts'

/** Runbooks that are followed on one machine, one after the other. */
let machine: Machine

beforeAll(async () => {
  machine = await startMachine()
})
afterAll(() => machine.stop())

/** A new key of the account `customer`. */
async function createKey(name: string): Promise<{ readonly id: string; readonly key: string }> {
  const { stdout } = await runCli(
    ['keys', 'create', '--account', 'customer', '--name', name, '--json'],
    { variables: { DATABASE_URL: machine.postgres.url } },
  )
  return JSON.parse(stdout) as { id: string; key: string }
}

const statusFor = async (key: string) =>
  (
    await fetch(`${machine.gateways[0].origin}/v1/dashboard/me`, {
      headers: { authorization: `Bearer ${key}` },
    })
  ).status

it('the runbook for API keys is followed for a key in use and for a leaked key that made others', async () => {
  const old = await createKey('production')
  const leaked = await createKey('laptop')
  await machine.complete({ key: old.key })
  const made = await fetch(`${machine.gateways[0].origin}/v1/dashboard/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${leaked.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'of a thief' }),
  })
  const stolen = ((await made.json()) as { readonly key: string }).key
  expect(await statusFor(stolen)).toBe(200)
  const client = new pg.Client({ connectionString: machine.postgres.url })
  await client.connect()
  const isUseRecorded = async () => {
    const { rows } = await client.query(
      'select 1 from api_keys where last_used_at is not null and name = $1',
      ['production'],
    )
    return rows.length > 0
  }
  await until('its use is noted', isUseRecorded)

  const variables = { ...machine.walking.variables, OLD: old.id, LEAKED: leaked.id }
  await walkPage('rotate-api-keys', { ...machine.walking, variables }, async (walk) => {
    await walk.section('Before you begin')
    await walk.section('Create the new key')
    const fresh = (await readFile(join(walk.folder, 'new.key'), 'utf8')).trim()
    await walk.section('Hand it over')
    // Two minutes go by in which the holder uses the new key alone.
    await client.query('update api_keys set last_used_at = last_used_at - 120')
    await machine.complete({ key: fresh })
    await walk.section('Watch the old one')
    expect(await statusFor(old.key)).toBe(200)
    await walk.section('Revoke it')
    await until('it is refused', async () => (await statusFor(old.key)) === 401)
    expect(await statusFor(fresh)).toBe(200)
    await walk.section('How to know that it worked')
    await walk.section('A leaked key')
    for (const key of [leaked.key, stolen])
      await until('it is refused', async () => (await statusFor(key)) === 401)
    expect(await statusFor(fresh)).toBe(200)
  })
  await client.end()
})

const PLANTED = 'a planted question 4e1c'
const REASON = 'asked for in ticket 81'
/** The hash of a completion that the database lacks. */
const LACKED = '0'.repeat(64)

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
  const { key } = await createKey('of the customer')
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

const HOME_ACCOUNT = `0x${'42'.repeat(20)}`

const balanceOf = async (address: string) =>
  BigInt(String(await machine.callChain('eth_getBalance', [address, 'latest'])))

/** What `affidavit relayer` says of one account. */
async function relayerAt(address: string): Promise<Readonly<Record<string, unknown>> | undefined> {
  const { stdout } = await runCli(['relayer', '--json'], {
    variables: { CONTROL_SOCKET: machine.gateways[0].controlSocket },
  })
  return (JSON.parse(stdout) as { readonly address: string }[]).find(
    (one) => one.address === address,
  )
}

it('the runbook for the relayer is followed with anchors that wait, on a chain that mines late', async () => {
  const old = relayerAddress(machine.chain.relayerKey)
  const records = [await machine.complete(), await machine.complete()]
  await until('they are confirmed', async () => (await relayerAt(old))?.unconfirmed === 0, 30_000)

  await machine.callChain('evm_setAutomine', [false])
  records.push(await machine.complete(), await machine.complete(), await machine.complete())
  await until('some wait', async () => Number((await relayerAt(old))?.pending) > 0)

  await walkPage(
    'rotate-the-relayer',
    { ...machine.walking, variables: { ...machine.walking.variables, HOME_ACCOUNT } },
    async (walk) => {
      await walk.section('Before you begin')
      const made = walk.section('Create the new account')
      const file = join(machine.etc, 'relayer.key.new')
      const readKey = async () => (await readFile(file, 'utf8').catch(() => '')).trim()
      await until('there is a whole key', async () => /^0x[0-9a-f]{64}$/.test(await readKey()))
      const fresh = relayerAddress(await readKey())
      // The wallet.
      await machine.callChain('anvil_setBalance', [fresh, `0x${(10n ** 18n).toString(16)}`])
      await made
      await walk.section('Change over')
      expect(await relayerAt(old)).toMatchObject({ current: false })
      expect(Number((await relayerAt(old))?.pending)).toBeGreaterThan(0)
      records.push(await machine.complete(), await machine.complete())

      // The pool forgets what it was sent. No gateway has the old key, but all is mined even so.
      await machine.callChain('anvil_dropAllTransactions', [])
      const home = walk.section('Wait, and bring the rest home')
      const isWaiting = async () =>
        /anchors of this account not confirmed, \d+ of these pending/.test(walk.printed())
      const mined = until('it waits', isWaiting).then(() => mineLate(() => relayerAt(old)))
      await Promise.all([mined, home])
      expect(await balanceOf(HOME_ACCOUNT)).toBeGreaterThan(9_000n * 10n ** 18n)
      expect(await balanceOf(old)).toBeLessThan(10n ** 16n)
      await walk.section('How to know that it worked')
    },
  )

  await machine.callChain('evm_setAutomine', [true])
  await until(
    'nothing waits',
    async () => {
      const { stdout } = await runCli(['relayer', '--json'], {
        variables: { CONTROL_SOCKET: machine.gateways[0].controlSocket },
      })
      return (JSON.parse(stdout) as { unconfirmed: number }[]).every((one) => one.unconfirmed === 0)
    },
    60_000,
  )
  for (const { hash } of records)
    expect(await machine.readRecord(hash)).not.toHaveProperty('reanchored')
  const audit = await machine.audit()
  expect(audit.stdout).toMatch(/CLEAN/)
  expect(audit.code).toBe(0)
})

it('relayer withdraw refuses the key that signs, an unknown key and a mistyped address', async () => {
  const withdraw = (key: string, to: string) =>
    runCli(['relayer', 'withdraw', '--rpc', machine.chain.rpcUrl, '--to', to], {
      variables: {
        CONTROL_SOCKET: machine.gateways[0].controlSocket,
        RELAYER_PRIVATE_KEY: key,
      },
    })
  const settings = await readFile(join(machine.etc, 'gateway.env'), 'utf8')
  const current = /^RELAYER_PRIVATE_KEY=(.*)$/m.exec(settings)?.[1] ?? ''
  const before = await balanceOf(relayerAddress(current))
  expect(await withdraw(current, HOME_ACCOUNT)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/the gateway signs with 0x/),
  })
  expect(await withdraw(`0x${'d5'.repeat(32)}`, HOME_ACCOUNT)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/the database has no anchors of 0x/),
  })
  const mistyped = '0x23618e81E3f5cdF7f54C3d65f7FBc0aBf5B21E8F'.replace('E8F', 'e8F')
  expect(await withdraw(current, mistyped)).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/its checksum is wrong/),
  })
  expect(await balanceOf(relayerAddress(current))).toBe(before)
})

/** Blocks come, one transaction's worth at a time, until no anchor is unconfirmed. */
async function mineLate(look: () => Promise<Readonly<Record<string, unknown>> | undefined>) {
  for (let count = 0; count < 200; count++) {
    if ((await look())?.unconfirmed === 0) break
    await machine.callChain('evm_mine', [])
  }
  // And for the transfer itself.
  await machine.callChain('evm_setAutomine', [true])
}

it('the old key is kept when the change over is done twice', async () => {
  const section = await readSection('rotate-the-relayer', 'Change over')
  const [block = ''] = /```sh\n[\s\S]*?```/.exec(section) ?? []
  const commands = { systemctl: () => undefined, curl: () => undefined, affidavit: () => undefined }
  await walkText(
    `## Twice\n\n${block}\n\n${block}\n`,
    { commands, variables: { GATEWAY: '' } },
    async (walk) => {
      const file = walk.place('/etc/affidavit/gateway.env')
      await writeFile(file, 'A=1\nRELAYER_PRIVATE_KEY=old\nB=2\n')
      await writeFile(`${walk.place('/etc/affidavit')}/relayer.key.new`, 'new\n')
      await walk.rest()
      expect(await readFile(`${file}.before`, 'utf8')).toContain('RELAYER_PRIVATE_KEY=old')
      expect(await readFile(file, 'utf8')).toBe('A=1\nB=2\nRELAYER_PRIVATE_KEY=new\n')
    },
  )
})
