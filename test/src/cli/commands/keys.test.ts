import { randomBytes } from 'node:crypto'
import { rm } from 'node:fs/promises'
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
import { makePrivateFolder } from '#src/storage/data-folder.ts'
import { startDatabase } from '#src/storage/database.ts'
import { makeDataFolder } from '../../../support/affidavit.ts'
import { secretOf } from '../../../support/key-secret.ts'
import { runCli } from '../../../support/run-cli.ts'
import { runCommandWith } from '../../../support/run-command.ts'

let dataFolder = ''

beforeAll(async () => {
  dataFolder = await makeDataFolder()
})
afterAll(() => rm(dataFolder, { recursive: true, force: true }))

const keys = (...words: string[]) => runCommandWith({ DATA_DIR: dataFolder }, 'keys', ...words)

async function openKeys() {
  const database = await startDatabase({ url: null, dataFolder }, { warn: () => undefined })
  const keys = createKeysStore(database)
  const service = createApiKeys({ keys, now: Date.now, random: randomBytes })
  return { database, service }
}

/**
 * What holds of keys, however the command reaches the database. `isValid` asks the database itself.
 */
async function tryKeys(isValid: (key: string) => Promise<boolean>): Promise<void> {
  const created = await keys('create', '--account', 'Ann', '--name', 'laptop')
  expect(created.code).toBe(0)
  const key = created.stdout.trim()
  expect(key).toMatch(/^afd_[a-z2-7]{16}_[\w-]{43}$/)
  expect(created.stderr).not.toContain(key)
  expect(await isValid(key)).toBe(true)
  const list = JSON.parse((await keys('list', '--json')).stdout)
  expect(list.at(-1)).toMatchObject({ scopes: ['inference', 'nodes', 'keys'], expires_at: null })
  const id = key.split('_')[1] ?? ''
  expect(list.at(-1)).toMatchObject({ id, account: 'Ann', name: 'laptop', revoked_at: null })
  expect(JSON.stringify(list)).not.toContain(secretOf(key))
  expect((await keys('revoke', id)).code).toBe(0)
  expect(await isValid(key)).toBe(false)
  expect((await keys('list')).stdout).toMatch(new RegExp(`${id} +Ann +laptop +\\S+ \\S+ +\\d{4}-`))
  expect(await keys('revoke', 'nonsense')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no key has'),
  })
}

/** What holds of accounts, and of keys with options, when the gateway's tiers are known. */
async function tryAccounts(): Promise<void> {
  const accounts = (...words: string[]) =>
    runCommandWith({ DATA_DIR: dataFolder }, 'accounts', ...words)
  expect((await accounts('create', 'Bea', '--tier', 'gold')).code).toBe(0)
  expect((await accounts('list')).stdout).toMatch(/Bea +gold +\d{4}-/)
  expect((await accounts('set-tier', 'Bea')).code).toBe(0)
  expect(JSON.parse((await accounts('list', '--json')).stdout)).toContainEqual(
    expect.objectContaining({ name: 'Bea', tier: null }),
  )
  expect(await accounts('create', 'Cleo', '--tier', 'silver')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('The account was made, in the default tier'),
  })
  expect((await accounts('create', 'Cleo', '--tier', 'silver')).stderr).not.toContain('was made')
  expect(await accounts('set-tier', 'Bea', 'silver')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no tier silver'),
  })
  expect(await accounts('set-tier', 'Nobody', 'gold')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no account'),
  })
  const made = await keys(
    'create',
    '--account',
    'Bea',
    '--scopes',
    'admin,nodes',
    '--expires',
    '2h',
    '--json',
  )
  const { scopes, expires_at: expiresAt } = JSON.parse(made.stdout)
  expect(scopes).toEqual(['admin', 'nodes'])
  expect(expiresAt - Date.now() / 1000).toBeGreaterThan(7_100)
  expect(expiresAt - Date.now() / 1000).toBeLessThanOrEqual(7_200)
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
    expect((await keys('create', option, value)).code).toBe(2)
  })

  it('the keys command works on the data folder while no gateway runs', {
    timeout: 120_000,
  }, async () => {
    await tryKeys(async (key) => {
      const { database, service } = await openKeys()
      const holder = await service.authenticate(key)
      await database.close()
      return holder !== null
    })
  })

  it('the keys command works through the gateway that runs on the data folder', {
    timeout: 120_000,
  }, async () => {
    const { database, service } = await openKeys()
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
      await tryAccounts()
      await tryKeys(async (key) => {
        // The service believes what it knew of a key for half a second.
        await new Promise((resolve) => setTimeout(resolve, 600))
        return (await service.authenticate(key)) !== null
      })
    } finally {
      await close()
      await folder.remove()
      await database.close()
    }
  })

  it('the keys command says when a process without a control socket has the folder', {
    timeout: 120_000,
  }, async () => {
    const { database } = await openKeys()
    const run = await runCli(['keys', 'list'], { variables: { DATA_DIR: dataFolder } })
    await database.close()
    expect(run.code).toBe(1)
    expect(run.stderr).toContain(`process ${process.pid} has it open`)
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
