import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { createAdminLog } from '#src/accounts/admin-log-store.ts'
import { readGatewayConfig } from '#src/config.ts'
import { openSettings, readReloadable } from '#src/reload.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { createTestDatabase } from '../support/test-database.ts'

let database: Database
beforeAll(async () => {
  database = await openDatabase({ url: await createTestDatabase() })
})
afterAll(() => database.close())

const tiersOf = (name: string) =>
  JSON.stringify({ default_tier: name, tiers: { [name]: { groups: [{ name: 'all' }] } } })
const pricesOf = (price: string) =>
  JSON.stringify({ prices: [{ models: ['*'], per_request: price }] })

/** Settings of four files, each of which can be written again. */
async function setUp() {
  const folder = mkdtempSync(join(tmpdir(), 'affidavit-reload-'))
  onTestFinished(() => rmSync(folder, { recursive: true }))
  const fileOf = (name: string) => join(folder, name)
  const write = (name: string, text: string) =>
    writeFileSync(fileOf(name), text, { mode: 0o600, flush: true })
  write('tiers', tiersOf('first'))
  write('prices', pricesOf('1'))
  write('openai', 'key-one\n')
  write('search', 'key-of-search\n')
  const read = () =>
    readReloadable(
      readGatewayConfig({
        RATE_LIMIT_TIERS_FILE: fileOf('tiers'),
        PRICES_FILE: fileOf('prices'),
        OPENAI_API_KEY_FILE: fileOf('openai'),
        SEARCH_PROVIDER: 'brave',
        SEARCH_API_KEY_FILE: fileOf('search'),
      }),
    )
  const lines: unknown[] = []
  const record = (values: object, message: string) => void lines.push([message, values])
  const clock = { ms: 1_000_000 }
  const adminLog = createAdminLog(database)
  const settings = openSettings({
    first: await read(),
    read,
    adminLog,
    log: { info: record, error: record },
    now: () => clock.ms,
  })
  const acts = (limit: number) =>
    adminLog.list({ before: null, kind: 'settings.reload', since: null, until: null, limit })
  return { write, settings, lines, clock, acts }
}

it('a reload reads tiers, prices and keys in files again, and notes which of them changed', async () => {
  const { write, settings, lines, clock, acts } = await setUp()
  const began = settings.current()
  write('tiers', tiersOf('second'))
  write('prices', pricesOf('2'))
  write('openai', 'key-two')
  write('search', 'other-key-of-search')
  clock.ms = 2_000_000
  expect(await settings.reload()).toBe(true)
  expect(settings.status()).toEqual({ isReloaded: true, reloadedAt: 2_000 })
  const { tiers, prices, credentials, upstream } = settings.current()
  expect([tiers.standard.name, prices[0]?.perRequest]).toEqual(['second', 2_000_000_000n])
  expect([credentials.get('openai'), upstream.search?.apiKey]).toEqual([
    'key-two',
    'other-key-of-search',
  ])
  // A call that began with the ones before has them still.
  expect([began.tiers.standard.name, began.credentials.get('openai')]).toEqual(['first', 'key-one'])
  const [act] = await acts(1)
  const changed = { tiers: 'changed', prices: 'changed', provider_keys: ['openai', 'search'] }
  expect(act).toMatchObject({ who: 'operator', from: 'signal', outcome: 'done', details: changed })
  expect(JSON.stringify([act, lines])).not.toMatch(/key-one|key-two|key-of-search/)
})

it.each([
  ['tiers', '{"default_tier":"x","tiers":{}}', 'default_tier: expected the name of one of'],
  ['prices', '{"prices":[{"models":["*"],"per_request":2}]}', 'prices.0.per_request: expected a'],
  ['prices', '{', 'PRICES_FILE: expected a member name, at offset 1'],
  ['openai', '', 'OPENAI_API_KEY_FILE: expected a value in the file, which is empty'],
])(
  'a reload leaves everything as it was when %s are %s, and says why',
  async (name, text, fault) => {
    const { write, settings, lines, acts } = await setUp()
    const before = settings.current()
    write('tiers', tiersOf('second'))
    write('prices', pricesOf('2'))
    write('openai', 'key-two')
    write(name, text)
    expect(await settings.reload()).toBe(false)
    expect(settings.current()).toBe(before)
    expect(settings.status()).toEqual({ isReloaded: false, reloadedAt: 1_000 })
    expect(JSON.stringify(lines)).toContain(fault)
    expect(await acts(1)).toMatchObject([{ outcome: 'refused' }])
    write('tiers', tiersOf('third'))
    write('prices', pricesOf('3'))
    write('openai', randomBytes(8).toString('hex'))
    expect(await settings.reload()).toBe(true)
    expect(settings.current().tiers.standard.name).toBe('third')
  },
)

it('a reload takes two signals one after another, and the last one reads what is there then', async () => {
  const { write, settings, acts } = await setUp()
  const first = settings.reload()
  write('prices', pricesOf('5'))
  expect(await Promise.all([first, settings.reload()])).toEqual([true, true])
  expect(settings.current().prices[0]?.perRequest).toBe(5_000_000_000n)
  expect(await acts(2)).toHaveLength(2)
})
