import { once } from 'node:events'
import { connect as connectSocket, createServer, type Server, type Socket } from 'node:net'
import { Kysely, sql } from 'kysely'
import pg from 'pg'
import { beforeAll, describe, expect, it } from 'vitest'
import { openDatabase } from '#src/storage/database.ts'
import { DatabaseAwayError, DatabaseUnfit } from '#src/storage/errors.ts'
import { openPostgres, POSTGRES_LIMITS } from '#src/storage/postgres.ts'
import { PREPARED } from '#src/storage/prepared.ts'
import { createRecordsStore } from '#src/verified/records/records-store.ts'
import { startFaultyProxy } from '../../support/faulty-proxy.ts'
import { TEST_DOMAIN } from '../../support/scripted-log.ts'
import { createTestDatabase } from '../../support/test-database.ts'

describe('a Postgres server', () => {
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

  it('a Postgres server is refused when its URL weakens synchronous_commit', async () => {
    const url = `${await createTestDatabase()}?options=-c%20synchronous_commit%3Doff`
    await expect(openDatabase({ url })).rejects.toThrow(DatabaseUnfit)
  })

  it('a Postgres server is refused when its URL sets another isolation level, and otherwise opened with the options of its URL', async () => {
    const url = await createTestDatabase()
    const open = (options: string) =>
      openDatabase({ url: `${url}?options=${encodeURIComponent(options)}` })
    await expect(open('-c default_transaction_isolation=serializable')).rejects.toThrow(
      DatabaseUnfit,
    )
    const database = await open('-c work_mem=7MB')
    const { rows } = await sql`select current_setting('work_mem') as memory`.execute(
      database.queries,
    )
    expect(rows).toEqual([{ memory: '7MB' }])
    await database.close()
  })

  it('a Postgres server is refused when its encoding is not UTF8', async () => {
    const url = await createTestDatabase()
    await execute(url, `create database latin template template0 encoding 'LATIN1' locale 'C'`)
    await expect(openDatabase({ url: url.replace(/[^/]*$/, 'latin') })).rejects.toThrow(
      DatabaseUnfit,
    )
  })

  it('a Postgres server is reported as unreachable when nothing listens', async () => {
    const url = 'postgres://postgres@127.0.0.1:1/nothing'
    await expect(openDatabase({ url })).rejects.toMatchObject({ code: 'ECONNREFUSED' })
  })

  it('a Postgres server may end idle connections: the next query takes a new one', async () => {
    const url = await createTestDatabase()
    const received: Error[] = []
    const database = await openDatabase({ url }, (error) => received.push(error))
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(
      database.commits,
    )
    // Only this connection is ended: the end of another one does not show that this one ended too.
    await execute(url, `select pg_terminate_backend(${rows[0]?.pid})`)
    await expect.poll(() => received.length).toBeGreaterThan(0)
    expect((await sql`select 1 as one`.execute(database.commits)).rows).toEqual([{ one: 1 }])
    await database.close()
  })

  it('a connection that falls silent is given up with its query, not waited on by the next', async () => {
    const proxy = await startSilencer(Number(new URL(url).port))
    const silenced = url.replace(/:\d+\//, `:${proxy.port}/`)
    const limits = { ...POSTGRES_LIMITS, commitConnectionsMax: 1, queryTimeoutMs: 300 }
    const opened = await openPostgres(silenced, () => {}, limits)
    const queries = new Kysely<never>({ dialect: opened.commitDialect ?? expect.unreachable() })
    await sql`select 1`.execute(queries)
    proxy.silence()
    await expect(sql`select 2`.execute(queries)).rejects.toMatchObject({
      name: 'DatabaseAwayError',
      message: expect.stringContaining('timeout'),
    })
    expect((await sql`select 3 as three`.execute(queries)).rows).toEqual([{ three: 3 }])
    expect(proxy.connections()).toBe(3)
    await queries.destroy()
    await opened.close()
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

  it('a Postgres server is told to be away when it ends a session in mid-query', async () => {
    const opened = await openPostgres(url, () => {}, {
      ...POSTGRES_LIMITS,
      commitConnectionsMax: 1,
    })
    const queries = new Kysely<never>({ dialect: opened.commitDialect ?? expect.unreachable() })
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(queries)
    const query = sql`select pg_sleep(20)`.execute(queries)
    const ended = execute(url, `select pg_terminate_backend(${rows[0]?.pid})`)
    await expect(query).rejects.toMatchObject({
      name: 'DatabaseAwayError',
      cause: { code: '57P01' },
    })
    await ended
    await queries.destroy()
    await opened.close()
  })

  it('a Postgres server is told to be away when it takes no connection, whatever its reason', async () => {
    const closed = await createTestDatabase()
    const opened = await openPostgres(closed, () => {})
    await execute(
      url,
      `alter database ${new URL(closed).pathname.slice(1)} allow_connections false`,
    )
    const queries = new Kysely<never>({ dialect: opened.commitDialect ?? expect.unreachable() })
    await expect(sql`select 1`.execute(queries)).rejects.toThrow(DatabaseAwayError)
    await queries.destroy()
    await opened.close()
  })

  it('a server that refuses a statement, or a value that cannot be sent, is not told to be away', async () => {
    const opened = await openPostgres(url, () => {})
    const queries = new Kysely<never>({ dialect: opened.commitDialect ?? expect.unreachable() })
    await expect(sql`select 1 / 0`.execute(queries)).rejects.toMatchObject({ code: '22012' })
    const circular: { self?: object } = {}
    circular.self = circular
    await expect(sql`select ${circular}::text`.execute(queries)).rejects.toThrow(TypeError)
    await queries.destroy()
    await opened.close()
  })

  it('a Postgres server ends a statement that takes too long, and the connection serves on', async () => {
    const opened = await openPostgres(url, () => {}, {
      ...POSTGRES_LIMITS,
      commitConnectionsMax: 1,
      statementTimeoutMs: 200,
    })
    const queries = new Kysely<never>({ dialect: opened.commitDialect ?? expect.unreachable() })
    const pidOf = async () =>
      (await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(queries)).rows
    const before = await pidOf()
    await expect(sql`select pg_sleep(20)`.execute(queries)).rejects.toMatchObject({ code: '57014' })
    expect(await pidOf()).toEqual(before)
    await queries.destroy()
    await opened.close()
  })
})

/** A TCP proxy whose present connections can be made to carry nothing, as a lost route does. */
async function startSilencer(target: number) {
  const sockets: Socket[] = []
  let accepted = 0
  const server: Server = createServer((near) => {
    accepted++
    const far = connectSocket(target, '127.0.0.1')
    near.pipe(far)
    far.pipe(near)
    for (const socket of [near, far]) {
      sockets.push(socket)
      socket.on('error', () => {})
    }
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  return {
    port: address === null || typeof address === 'string' ? expect.unreachable() : address.port,
    connections: () => accepted,
    silence() {
      for (const socket of sockets) socket.unpipe().pause()
    },
    async stop() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}
