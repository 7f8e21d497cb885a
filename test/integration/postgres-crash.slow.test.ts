import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Database, openDatabase } from '#src/storage/database.ts'
import type { StoredRecord } from '#src/verified/records/records-store.ts'
import { type RunningCommitter, runCommitter } from '../src/verified/commits/run-committer.ts'
import { type PostgresServer, startPostgres } from '../support/postgres.ts'
import { createScriptedLog, type ScriptedLog } from '../support/scripted-log.ts'

const KILLS = 6
const never = new AbortController().signal

describe('Postgres', () => {
  let server: PostgresServer
  let database: Database
  let log: ScriptedLog
  let running: RunningCommitter

  beforeAll(async () => {
    server = await startPostgres()
    database = await openDatabase({ url: server.url })
    log = await createScriptedLog()
    running = runCommitter(database, log)
  })
  afterAll(async () => {
    await running.committer.stop()
    await database.close()
    await server.stop()
  })

  /** Callers that ask one after the other until `isOver`. */
  async function ask(given: StoredRecord[], isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const { notary, index } = log.seal()
      given.push(await running.committer.waitFor(notary, index, never))
    }
  }

  async function callWhile(disturb: () => Promise<void>): Promise<readonly StoredRecord[]> {
    const given: StoredRecord[] = []
    let isOver = false
    const callers = Array.from({ length: 8 }, () => ask(given, () => isOver))
    await disturb()
    isOver = true
    await Promise.all(callers)
    return given
  }

  async function checkAll(given: readonly StoredRecord[]): Promise<void> {
    for (const record of given)
      expect(await running.records.findByIndex(record.notary, record.index)).toEqual(record)
    const rows = await database.queries
      .selectFrom('records')
      .select('index')
      .orderBy('position')
      .execute()
    expect(rows.map(({ index }) => index)).toEqual(
      Array.from({ length: log.size() }, (_, index) => index),
    )
    const anchors = await database.queries
      .selectFrom('anchors')
      .select(['nonce', 'size'])
      .orderBy('nonce')
      .execute()
    expect(anchors.map(({ nonce }) => nonce)).toEqual(anchors.map((_, at) => at))
    expect(anchors.at(-1)?.size).toBe(log.size())
  }

  it(`Postgres may be killed ${KILLS} times in mid-work: every caller is answered, and nothing is lost or doubled`, async () => {
    const given = await callWhile(async () => {
      for (let kill = 0; kill < KILLS; kill++) {
        await sleep(Math.random() * 500)
        await server.kill()
        await sleep(Math.random() * 300)
        await server.restart()
        await expect
          .poll(() => running.committer.status().phase, { timeout: 20_000 })
          .toBe('following')
      }
    })
    expect(given.length).toBeGreaterThan(KILLS)
    expect(running.committer.status().failures).toBeGreaterThanOrEqual(KILLS)
    await checkAll(given)
  })

  it('Postgres may lose the connection of a commit at any moment, and nothing is lost or doubled', async () => {
    const killer = new pg.Client(server.url)
    await killer.connect()
    const before = running.committer.status().failures
    const given = await callWhile(async () => {
      for (let kill = 0; kill < 40; kill++) {
        await sleep(Math.random() * 30)
        await killer.query(`select pg_terminate_backend(pid) from pg_stat_activity
          where application_name = 'affidavit' and query like '%payer as (%'`)
      }
    })
    await killer.end()
    expect(running.committer.status().failures).toBeGreaterThan(before)
    await checkAll(given)
  })

  it('a commit that hangs lets the rival behind its lock store nothing twice', async () => {
    const holder = new pg.Client(server.url)
    await holder.connect()
    await holder.query('begin')
    await holder.query('update relayers set next_nonce = next_nonce')
    const given = callWhile(() => sleep(500))
    await sleep(300)
    const { rows } =
      await sql`select 1 from pg_stat_activity where wait_event_type = 'Lock'`.execute(
        database.queries,
      )
    expect(rows).toHaveLength(1)
    await holder.query('rollback')
    await holder.end()
    await checkAll(await given)
  })
})
