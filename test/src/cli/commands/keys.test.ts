import { randomBytes } from 'node:crypto'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { accountActs } from '#src/accounts/account-acts.ts'
import { actRoutes } from '#src/accounts/acts.ts'
import { createAdminLog } from '#src/accounts/admin-log-store.ts'
import { createApiKeys } from '#src/accounts/api-keys.ts'
import { keyActs } from '#src/accounts/key-acts.ts'
import { createKeysStore } from '#src/accounts/keys-store.ts'
import { createControlServer, openControl } from '#src/api/control-server.ts'
import { createLogger } from '#src/observability/logger.ts'
import { lockFolder } from '#src/runtime/folder-lock.ts'
import { makePrivateFolder } from '#src/storage/data-folder.ts'
import { DATABASE_FOLDER, type Database, startDatabase } from '#src/storage/database.ts'
import { folderOfFile } from '../../../support/folders.ts'
import { secretOf } from '../../../support/key-secret.ts'
import { runCommandWith } from '../../../support/run-command.ts'
import { createTestDatabase } from '../../../support/test-database.ts'

let url: string
let database: Database
const dataFolder = folderOfFile()
beforeAll(async () => {
  url = await createTestDatabase()
  database = await startDatabase({ url, dataFolder: '' }, { warn: () => undefined })
})
afterAll(() => database.close())

type Run = (...words: readonly string[]) => ReturnType<typeof runCommandWith>

const inDatabase: Run = (...words) => runCommandWith({ DATABASE_URL: url }, ...words)
const atFolder: Run = (...words) => runCommandWith({ DATA_DIR: dataFolder }, ...words)

/** Asks the database itself, with nothing remembered. */
async function isValid(key: string): Promise<boolean> {
  const keys = createKeysStore(database)
  const service = createApiKeys({ keys, now: Date.now, random: randomBytes })
  return (await service.authenticate(key)) !== null
}

/** What holds of keys, however the command reaches the database. */
async function tryKeys(run: Run): Promise<void> {
  const created = await run('keys', 'create', '--account', 'Ann', '--name', 'laptop')
  expect(created.code).toBe(0)
  const key = created.stdout.trim()
  expect(key).toMatch(/^afd_[a-z2-7]{16}_[\w-]{43}$/)
  expect(created.stderr).not.toContain(key)
  expect(await isValid(key)).toBe(true)
  const list = JSON.parse((await run('keys', 'list', '--json')).stdout)
  expect(list.at(-1)).toMatchObject({ scopes: ['inference', 'nodes', 'keys'], expires_at: null })
  const id = key.split('_')[1] ?? ''
  expect(list.at(-1)).toMatchObject({ id, account: 'Ann', name: 'laptop', revoked_at: null })
  expect(JSON.stringify(list)).not.toContain(secretOf(key))
  expect((await run('keys', 'revoke', id)).code).toBe(0)
  expect(await isValid(key)).toBe(false)
  const { stdout } = await run('keys', 'list')
  expect(stdout).toMatch(new RegExp(`${id} +Ann +laptop +\\S+ \\S+ +\\d{4}-`))
  expect(await run('keys', 'revoke', 'nonsense')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no key has'),
  })
}

/** What holds of accounts, and of keys with options, when the gateway's tiers are known. */
async function tryAccounts(run: Run): Promise<void> {
  expect((await run('accounts', 'create', 'Bea', '--tier', 'gold')).code).toBe(0)
  expect((await run('accounts', 'list')).stdout).toMatch(/Bea +gold +\d{4}-/)
  expect((await run('accounts', 'set-tier', 'Bea')).code).toBe(0)
  expect(JSON.parse((await run('accounts', 'list', '--json')).stdout)).toContainEqual(
    expect.objectContaining({ name: 'Bea', tier: null }),
  )
  for (const [words, reason] of [
    [['create', 'Cleo', '--tier', 'silver'], 'The account was created, in the default tier'],
    [['create', 'Cleo', '--tier', 'silver'], 'no tier silver (RATE_LIMIT_TIERS_FILE)'],
    [['set-tier', 'Bea', 'silver'], 'no tier silver'],
    [['set-tier', 'Nobody', 'gold'], 'no account'],
  ] as const) {
    const { code, stderr } = await run('accounts', ...words)
    expect([code, stderr]).toEqual([1, expect.stringContaining(reason)])
  }
  const words = ['--account', 'Bea', '--scopes', 'admin,nodes', '--expires', '2h', '--json']
  const made = JSON.parse((await run('keys', 'create', ...words)).stdout)
  expect(made.scopes).toEqual(['admin', 'nodes'])
  expect(made.expires_at - Date.now() / 1000).toBeGreaterThan(7_100)
  expect(made.expires_at - Date.now() / 1000).toBeLessThanOrEqual(7_200)
}

describe('affidavit keys', () => {
  it.each([
    ['--scopes', 'root'],
    ['--scopes', 'nodes,nodes'],
    ['--scopes', ''],
    ['--expires', '2020-01-01'],
    ['--expires', '2030-02-30'],
    ['--expires', 'tomorrow'],
    ['--expires', '0d'],
  ])('the keys command refuses %s %j', async (option, value) => {
    expect((await inDatabase('keys', 'create', option, value)).code).toBe(2)
  })

  it('the keys command works in the database', async () => {
    await tryKeys(inDatabase)
  })

  it('the keys command works through the gateway that runs on the data folder', async () => {
    const folder = await makePrivateFolder()
    const place = { database, adminLog: createAdminLog(database), tiers: () => ['gold'] }
    const server = createControlServer({
      processes: 1,
      routes: [...actRoutes(accountActs, place), ...actRoutes(keyActs, place)],
      now: Date.now,
      makeRequestId: () => 'req_1',
      log: createLogger({ level: 'silent', destination: process.stderr }),
    })
    const close = await openControl(server, { dataFolder, privateFolder: folder.path })
    try {
      const socket = join(folder.path, 'control.sock')
      const elsewhere = { CONTROL_SOCKET: socket, DATA_DIR: join(dataFolder, 'none') }
      expect(await runCommandWith(elsewhere, 'keys', 'list')).toMatchObject({ code: 0 })
      await tryAccounts(atFolder)
      await tryKeys(atFolder)
    } finally {
      await close()
      await folder.remove()
    }
  })

  it('the keys command says when a process without a control socket has the folder', async () => {
    const folder = join(dataFolder, DATABASE_FOLDER)
    await mkdir(folder)
    const lock = await lockFolder(folder)
    const { code, stderr } = await atFolder('keys', 'list')
    await lock.release()
    expect(code).toBe(1)
    expect(stderr).toContain(`process ${process.pid} has it open`)
  })

  it('the keys command uses no data folder when no gateway answers at the control socket', async () => {
    const variables = { CONTROL_SOCKET: join(dataFolder, 'no.sock'), DATA_DIR: dataFolder }
    expect(await runCommandWith(variables, 'keys', 'list')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no gateway answers at'),
    })
  })

  it('the keys command says when there is no data folder', async () => {
    const run = await runCommandWith({ DATA_DIR: join(dataFolder, 'none') }, 'keys', 'list')
    expect(run).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('there is no data folder'),
    })
  })
})

/** Accounts with a budget each, as the commands themselves could not make them. */
async function insertAccounts(count: number, name: string): Promise<void> {
  const rows = Array.from({ length: count }, (_, at) => ({
    id: crypto.randomUUID(),
    name: `${name}${String(at).padStart(4, '0')}`,
    created_at: 1_700_000_000 + at,
  }))
  await database.queries.insertInto('accounts').values(rows).execute()
  const budget = { key_id: '', what: 'requests', per: 'day', bound: 5 }
  const budgets = rows.map(({ id }) => ({ account_id: id, ...budget }))
  await database.queries.insertInto('budgets').values(budgets).execute()
}

describe('a list', () => {
  it('a list of accounts and a list of budgets go on after their first page', async () => {
    const count = 1_001
    await insertAccounts(count, 'many ')
    const inserted = Array.from({ length: count }, (_, at) => `many ${String(at).padStart(4, '0')}`)
    const listed = async (...words: readonly string[]) => {
      const list: readonly { readonly name?: string; readonly account?: string }[] = JSON.parse(
        (await inDatabase(...words, '--json')).stdout,
      )
      return list
        .map(({ name, account = name }) => account)
        .filter((one) => one?.startsWith('many'))
    }
    expect(await listed('accounts', 'list')).toEqual(inserted)
    expect(await listed('budgets')).toEqual(inserted)
  })

  it('a list shows a name with control characters on one line, with nothing that acts on a terminal', async () => {
    await insertAccounts(1, '\u001b[2J\u202eevil\nOther  gold\r')
    for (const words of [['accounts', 'list'], ['budgets']]) {
      const { stdout } = await inDatabase(...words)
      const lines = stdout.split('\n').filter((line) => line.includes('evil'))
      expect(lines).toEqual([
        expect.stringContaining('\\u{1b}[2J\\u{202e}evil\\u{a}Other  gold\\u{d}0000'),
      ])
      expect(stdout).not.toMatch(/[^\n\P{Cc}]|\p{Cf}/u)
    }
  })
})
