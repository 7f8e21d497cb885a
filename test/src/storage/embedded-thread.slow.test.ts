import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sql } from 'kysely'
import { afterAll, afterEach, expect, it } from 'vitest'
import { type EmbeddedThread, startEmbeddedThread } from '#src/storage/embedded-thread.ts'
import { DatabaseAwayError } from '#src/storage/errors.ts'
import { createEmbeddedPool, discardBroken } from '#src/storage/postgres.ts'
import { PREPARED } from '#src/storage/prepared.ts'
import { copyEmbeddedDatabase, useDatabases } from '../../support/databases.ts'

const { queries } = await (await useDatabases('embedded')).open()

it('the embedded database in its thread runs a prepared statement with other values, and after an error', async () => {
  const half = (value: number) =>
    sql<{ half: number }>`${PREPARED} select 10 / ${value}::integer as half`.execute(queries)
  expect((await half(5)).rows).toEqual([{ half: 2 }])
  await expect(half(0)).rejects.toThrow('division by zero')
  expect((await half(2)).rows).toEqual([{ half: 5 }])
})

it('the embedded database in its thread gives megabytes, many at once, in the order that they were asked for', async () => {
  const asked = Array.from({ length: 20 }, (_, place) =>
    sql<{
      text: string
    }>`select ${place}::text || repeat('x', ${place * 100_000}::integer) as text`.execute(queries),
  )
  for (const [place, { rows }] of (await Promise.all(asked)).entries())
    expect(rows[0]?.text).toBe(`${place}${'x'.repeat(place * 100_000)}`)
})

let thread: EmbeddedThread | null = null
const folder = await mkdtemp(join(tmpdir(), 'affidavit-embedded-'))
await copyEmbeddedDatabase(folder)
afterEach(async () => {
  await thread?.close()
  thread = null
})
afterAll(() => rm(folder, { recursive: true, force: true }))

it('a thread takes a connection after another, though what that prepared is still there', async () => {
  const opened = await startEmbeddedThread(folder)
  thread = opened
  for (let turn = 0; turn < 3; turn++) {
    const pool = createEmbeddedPool(() => opened.connect())
    const asked = { name: 'same', text: 'select $1::integer as value', values: [turn] }
    expect((await pool.query(asked)).rows).toEqual([{ value: turn }])
    await pool.end()
  }
})

it('a thread takes nothing over from a connection that was thrown away in a transaction', async () => {
  const opened = await startEmbeddedThread(folder)
  thread = opened
  const pool = createEmbeddedPool(() => opened.connect())
  for (const last of ['select 1', 'select 1 / 0']) {
    const thrown = await pool.connect()
    await thrown.query('begin')
    await thrown.query('create table left_open (id integer)')
    await thrown.query(last).catch(() => undefined)
    thrown.release(true)
    const { rows } = await pool.query(`select to_regclass('left_open') is null as is_gone`)
    expect(rows).toEqual([{ is_gone: true }])
  }
  await pool.end()
})

it('a thread that ended makes every query fail as one to a database that is away', async () => {
  const opened = await startEmbeddedThread(folder)
  const pool = discardBroken(createEmbeddedPool(() => opened.connect()))
  const client = await pool.connect()
  await opened.close()
  await expect(client.query('select 1', [])).rejects.toThrow(DatabaseAwayError)
  client.release()
  await expect(pool.connect()).rejects.toThrow(DatabaseAwayError)
  await pool.end()
})
