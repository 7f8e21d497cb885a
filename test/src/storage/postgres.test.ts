import { Kysely, sql } from 'kysely'
import pg from 'pg'
import { beforeAll, expect, it } from 'vitest'
import { openDatabase } from '#src/storage/database.ts'
import { DatabaseAwayError, DatabaseUnfit } from '#src/storage/errors.ts'
import { openPostgres, POSTGRES_LIMITS } from '#src/storage/postgres.ts'
import { PREPARED } from '#src/storage/prepared.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { startFaultyProxy } from '../../support/faulty-proxy.ts'
import { TEST_DOMAIN } from '../../support/scripted-log.ts'
import { createTestDatabase } from '../../support/test-database.ts'

let url = ''
beforeAll(async () => {
  url = await createTestDatabase({ empty: true })
})

async function execute(url: string, statement: string): Promise<void> {
  const client = new pg.Client(url)
  await client.connect()
  await client.query(statement)
  await client.end()
}

it('a Postgres server is migrated once when several gateways start together', async () => {
  const url = await createTestDatabase({ empty: true })
  const opened = await Promise.all([1, 2, 3].map(() => openDatabase({ url })))
  const { rows } =
    await sql`select name, count(*) as times from kysely_migration group by name having count(*) > 1`.execute(
      opened[0]?.queries ?? expect.unreachable(),
    )
  expect(rows).toEqual([])
  expect(await opened[0]?.queries.selectFrom('records').selectAll().execute()).toEqual([])
  await Promise.all(opened.map((database) => database.close()))
})

it('a Postgres server has synchronous_commit on and read committed in every session, also where the database has others', async () => {
  const url = await createTestDatabase()
  const name = new URL(url).pathname.slice(1)
  await execute(url, `alter database ${name} set synchronous_commit = off`)
  await execute(url, `alter database ${name} set default_transaction_isolation = 'serializable'`)
  const database = await openDatabase({ url })
  for (const queries of [database.queries, database.commits]) {
    const { rows } = await sql`
      select current_setting('synchronous_commit') as synced, current_setting('transaction_isolation') as isolation,
        current_setting('application_name') as name, current_setting('statement_timeout') as timeout`.execute(
      queries,
    )
    expect(rows).toEqual([
      { synced: 'on', isolation: 'read committed', name: 'affidavit', timeout: '15s' },
    ])
  }
  await database.close()
})

it('a Postgres server plans a statement that is marked once for a connection, and any other each time', async () => {
  const url = await createTestDatabase()
  const database = await openDatabase({ url })
  for (let run = 0; run < 3; run++)
    await database.commits.connection().execute(async (queries) => {
      await sql`${PREPARED} select ${run}::integer as prepared`.execute(queries)
      await sql`select ${run}::integer as unprepared`.execute(queries)
    })
  const { rows } = await sql<{ statement: string; runs: number }>`
    select statement, (generic_plans + custom_plans)::integer as runs from pg_prepared_statements`.execute(
    database.commits,
  )
  expect(rows).toEqual([{ statement: '/* prepared */ select $1::integer as prepared', runs: 3 }])
  await database.close()
})

it('a Postgres server reads prepared what waits for a commit, also after a later migration', async () => {
  const url = await createTestDatabase()
  const database = await openDatabase({ url })
  const { findByIndexes } = createRecordsStore(database, TEST_DOMAIN.chainId)
  expect(await findByIndexes('0x', [0])).toEqual([])
  await execute(url, 'alter table records add column later text')
  expect(await findByIndexes('0x', [0])).toEqual([])
  await database.close()
})

it('a Postgres server is refused when its URL sets another isolation level, and otherwise opened with the options of its URL', async () => {
  const url = await createTestDatabase()
  const open = (options: string) =>
    openDatabase({ url: `${url}?options=${encodeURIComponent(options)}` })
  await expect(open('-c default_transaction_isolation=serializable')).rejects.toThrow(DatabaseUnfit)
  const database = await open('-c work_mem=7MB')
  const { rows } = await sql`select current_setting('work_mem') as memory`.execute(database.queries)
  expect(rows).toEqual([{ memory: '7MB' }])
  await database.close()
})

it('a Postgres server is refused when its encoding is not UTF8', async () => {
  const url = await createTestDatabase()
  await execute(url, `create database latin template template0 encoding 'LATIN1' locale 'C'`)
  await expect(openDatabase({ url: url.replace(/[^/]*$/, 'latin') })).rejects.toThrow(DatabaseUnfit)
})

/** Runs queries on the commits' only connection. */
async function onCommits(
  use: (queries: Kysely<never>) => Promise<void>,
  limits: Partial<typeof POSTGRES_LIMITS> = {},
  at = url,
): Promise<void> {
  const all = { ...POSTGRES_LIMITS, commitConnectionsMax: 1, ...limits }
  const opened = await openPostgres(at, () => {}, all)
  const queries = new Kysely<never>({ dialect: opened.commitDialect ?? expect.unreachable() })
  await use(queries).finally(async () => {
    await queries.destroy()
    await opened.close()
  })
}

const pidOf = async (queries: Kysely<never>) =>
  (await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(queries)).rows[0]?.pid

it('a connection that falls silent is given up with its query, not waited on by the next', async () => {
  const proxy = await startFaultyProxy(Number(new URL(url).port))
  const check = async (queries: Kysely<never>) => {
    const before = await pidOf(queries)
    await proxy.behave('hang')
    await expect(sql`select 2`.execute(queries)).rejects.toMatchObject({
      name: 'DatabaseAwayError',
      message: expect.stringContaining('timeout'),
    })
    await proxy.behave('pass')
    expect([before, undefined]).not.toContain(await pidOf(queries))
  }
  await onCommits(check, { queryTimeoutMs: 300 }, url.replace(/:\d+\//, `:${proxy.port}/`))
  await proxy.stop()
})

it('a Postgres server that says nothing any more has queries fail at once, and serves when it goes on', async () => {
  const proxy = await startFaultyProxy(Number(new URL(url).port))
  const frozen = url.replace(/:\d+\//, `:${proxy.port}/`)
  const received: Error[] = []
  const limits = { ...POSTGRES_LIMITS, probeTimeoutMs: 200, silenceMaxMs: 300 }
  const opened = await openPostgres(frozen, (error) => received.push(error), limits)
  const queries = new Kysely<never>({ dialect: opened.dialect })
  await sql`select 1`.execute(queries)
  await proxy.behave('hang')
  const startedAt = performance.now()
  const away = { name: 'DatabaseAwayError', message: expect.stringContaining('answered nothing') }
  await expect(sql`select 2`.execute(queries)).rejects.toMatchObject(away)
  await expect(sql`select 3`.execute(queries)).rejects.toMatchObject(away)
  expect(performance.now() - startedAt).toBeLessThan(POSTGRES_LIMITS.queryTimeoutMs)
  expect(received).toContainEqual(expect.objectContaining(away))
  await proxy.behave('pass')
  const answered = async () => (await sql`select 4 as four`.execute(queries)).rows
  await expect.poll(() => answered().catch(() => null)).toEqual([{ four: 4 }])
  await queries.destroy()
  await opened.close()
  await proxy.stop()
})

it('a Postgres server is told to be away when it ends a session in mid-query', () =>
  onCommits(async (queries) => {
    const pid = await pidOf(queries)
    const query = sql`select pg_sleep(20)`.execute(queries)
    const ended = execute(url, `select pg_terminate_backend(${pid})`)
    await expect(query).rejects.toMatchObject({
      name: 'DatabaseAwayError',
      cause: { code: '57P01' },
    })
    await ended
  }))

it('a Postgres server is told to be away when it takes no connection, whatever its reason', async () => {
  const closed = await createTestDatabase()
  const check = async (queries: Kysely<never>) => {
    const name = new URL(closed).pathname.slice(1)
    await execute(url, `alter database ${name} allow_connections false`)
    await expect(sql`select 1`.execute(queries)).rejects.toThrow(DatabaseAwayError)
  }
  await onCommits(check, {}, closed)
})

it('a server that refuses a statement, or a value that cannot be sent, is not told to be away', () =>
  onCommits(async (queries) => {
    await expect(sql`select 1 / 0`.execute(queries)).rejects.toMatchObject({ code: '22012' })
    const circular: { self?: object } = {}
    circular.self = circular
    await expect(sql`select ${circular}::text`.execute(queries)).rejects.toThrow(TypeError)
  }))

it('a Postgres server ends a statement that takes too long, and the connection serves on', async () => {
  const check = async (queries: Kysely<never>) => {
    const before = await pidOf(queries)
    await expect(sql`select pg_sleep(20)`.execute(queries)).rejects.toMatchObject({ code: '57014' })
    expect(await pidOf(queries)).toBe(before)
  }
  await onCommits(check, { statementTimeoutMs: 200 })
})
