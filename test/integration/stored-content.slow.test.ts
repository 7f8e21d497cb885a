import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sql } from 'kysely'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createKeysStore } from '#src/accounts/keys-store.ts'
import { createContentCipher } from '#src/storage/content-cipher.ts'
import { parseContentKeys } from '#src/storage/content-keys.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { createErasuresStore } from '#src/verified/records/erasures-store.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { CREATED_AT, makeLog, OPENING, storeCommits } from '../src/verified/commits/build-commit.ts'
import { launchAffidavit, makeDataFolder, startAffidavit } from '../support/affidavit.ts'
import { childEnvironment } from '../support/child-environment.ts'
import { type PostgresServer, startPostgres } from '../support/postgres.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'

const MAIN = join(import.meta.dirname, '../../src/cli/main.ts')
const RECORDS = 6_000
/** Records beyond their age limit: erasing them takes some seconds. */
const OLD = 12_000

let server: PostgresServer
let folder: string
let dataFolder: string
const opened: Database[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-content-'))
  dataFolder = await mkdtemp(join(tmpdir(), 'affidavit-pgdata-'))
  server = await startPostgres({}, { dataFolder })
})
afterAll(async () => {
  for (const database of opened) await database.close()
  await server.stop()
  for (const one of [folder, dataFolder]) await rm(one, { recursive: true, force: true })
})

/** A new database, and a function that opens it with a new key. */
async function openNew() {
  const url = await server.createDatabase()
  const file = join(folder, url.replace(/.*\//, ''))
  const text = (await runCli(['content', 'key'])).stdout
  await writeFile(file, text, { mode: 0o600 })
  const keys = parseContentKeys(text)
  if (typeof keys === 'string') throw new Error(keys)
  const open = async (isSealing: boolean) => {
    const database = await openDatabase(
      { url },
      undefined,
      isSealing ? createContentCipher(keys) : null,
    )
    opened.push(database)
    return database
  }
  return { open, variables: { DATABASE_URL: url, CONTENT_KEY_FILE: file } }
}

/** The server's files, of tables, logs and all others, that hold a text. */
async function filesWith(text: string): Promise<readonly string[]> {
  const entries = await readdir(dataFolder, { recursive: true, withFileTypes: true })
  const found: string[] = []
  for (const entry of entries.filter((one) => one.isFile())) {
    const path = join(entry.parentPath, entry.name)
    // Postgres may remove a file meanwhile.
    const bytes = await readFile(path).catch(() => null)
    if (bytes?.includes(text)) found.push(path.slice(dataFolder.length))
  }
  return found
}

const checkpoint = (database: Database) => sql`checkpoint`.execute(database.queries)

it('an encrypted prompt is in no file of the server, its write-ahead log included', async () => {
  const { open } = await openNew()
  const sealing = await open(true)
  const long = `${'lorem ipsum '.repeat(1_000)}a planted sentence 5c1f`
  const record = { request: `{"q":"${long}"}`, response: '{"a":"a planted reply 2b7d"}' }
  const { stored } = await storeCommits(createCommitsStore(sealing), makeLog(), [[record]])
  await checkpoint(sealing)
  for (const planted of ['a planted sentence 5c1f', 'a planted reply 2b7d'])
    expect(await filesWith(planted)).toEqual([])
  const [{ hash } = { hash: '' }] = stored[0]?.records ?? []
  const found = await createRecordsStore(sealing, OPENING.domain.chainId).findByHash(hash, {
    accountId: null,
  })
  expect(found?.request).toBe(record.request)
})

it('the encryption of stored content ends, though its command is killed again and again', async () => {
  const { open, variables } = await openNew()
  const plain = await open(false)
  const batches = Array.from({ length: RECORDS / 500 }, () =>
    Array.from({ length: 500 }, () => ({
      request: '{"q":"clear 91aa"}',
      response: '{"a":"clear"}',
    })),
  )
  const { stored } = await storeCommits(createCommitsStore(plain), makeLog(), batches)
  const countClear = async () => {
    const { rows } = await sql<{ count: number }>`
      select count(*)::bigint as count from records where request is not null`.execute(
      plain.queries,
    )
    return rows[0]?.count ?? expect.unreachable()
  }
  for (const left of [5_500, 3_000]) {
    const child = spawn(process.execPath, [MAIN, 'content', 'encrypt'], {
      env: { ...childEnvironment(), ...variables },
      stdio: 'ignore',
    })
    const ended = once(child, 'exit')
    await until('some are encrypted', async () => (await countClear()) < left)
    child.kill('SIGKILL')
    await ended
  }
  const between = await countClear()
  expect(between).toBeGreaterThan(0)
  const last = await runCli(['content', 'encrypt'], { variables })
  const [, encrypted] = last.stdout.match(/^Content of (\d+) records encrypted\.\n$/) ?? []
  expect(last.code).toBe(0)
  // The server may have finished the last statement of the killed command after the count.
  expect(Number(encrypted)).toBeLessThanOrEqual(between)
  expect(await countClear()).toBe(0)
  const records = createRecordsStore(await open(true), OPENING.domain.chainId)
  for (const commit of stored) {
    const [one] = commit.records
    const found = await records.findByHash(one?.hash ?? '', { accountId: null })
    expect([found?.request, found?.response]).toEqual([one?.request, one?.response])
  }
  // Neither vacuum nor a checkpoint was requested: the plain text is still in the files.
  expect(await filesWith('clear 91aa')).not.toEqual([])
})

it('old content is erased once, though a gateway is killed during the erasure and two others go on', async () => {
  const days = Math.ceil((Date.now() / 1_000 - CREATED_AT) / 86_400)
  const url = await server.createDatabase()
  const database = await openDatabase({ url })
  opened.push(database)
  const keys = createKeysStore(database)
  const [standard, longer] = [crypto.randomUUID(), crypto.randomUUID()]
  for (const id of [standard, longer])
    await keys.openAccount({ id, name: id, createdAt: CREATED_AT })
  await createErasuresStore(database).setRetention(longer, days + 10_000)
  const batch = (accountId: string | null, createdAt = CREATED_AT) =>
    Array.from({ length: 500 }, () => ({ accountId, createdAt }))
  const now = Math.floor(Date.now() / 1_000)
  await storeCommits(createCommitsStore(database), makeLog(), [
    ...Array.from({ length: OLD / 1_000 }, () => batch(standard)),
    ...Array.from({ length: OLD / 1_000 }, () => batch(null)),
    batch(longer),
    batch(standard, now),
  ])
  const countLeft = async () => {
    const { rows } = await sql<{ count: number }>`
      select count(*)::bigint as count from records
      where request is not null and created_at = ${CREATED_AT}
        and account_id is distinct from ${longer}::uuid`.execute(database.queries)
    return rows[0]?.count ?? expect.unreachable()
  }
  const folders = await Promise.all([makeDataFolder(), makeDataFolder()])
  const variables = { DATABASE_URL: url, RETENTION_DAYS: String(days - 1) }

  const killed = launchAffidavit({ dataFolder: folders[0], variables })
  const ended = once(killed.child, 'exit')
  await until('some are erased', async () => (await countLeft()) < OLD - 1_000, 60_000)
  killed.child.kill('SIGKILL')
  await ended
  const between = await countLeft()
  expect(between).toBeGreaterThan(0)

  const gateways = await Promise.all(
    folders.map((dataFolder) => startAffidavit({ dataFolder, variables })),
  )
  await until('all are erased', async () => (await countLeft()) === 0, 60_000)
  for (const gateway of gateways) await gateway.stop()
  const erased = gateways.flatMap((gateway) =>
    gateway
      .output()
      .stderr.split('\n')
      .filter((line) => line.includes('"content erased"'))
      .map((line): number => JSON.parse(line).records),
  )
  expect(erased.reduce((sum, count) => sum + count, 0)).toBe(between)
  for (const folder of folders) await rm(folder, { recursive: true, force: true })

  const { rows } = await sql<{ kept: boolean; erased: boolean; explained: boolean; count: number }>`
    select coalesce(r.account_id = ${longer}::uuid, false) or r.created_at = ${now} as kept,
      r.request is null and r.response is null and r.erased_at is not null as erased,
      e.requested_by = 'retention' and e.reason = ${`kept for ${days - 1} days`} as explained,
      count(*)::bigint as count
    from records r left join erasures e on e.id = r.erasure_id group by 1, 2, 3
    order by count`.execute(database.queries)
  expect(rows).toEqual([
    { kept: true, erased: false, explained: null, count: 1_000 },
    { kept: false, erased: true, explained: true, count: OLD },
  ])
})
