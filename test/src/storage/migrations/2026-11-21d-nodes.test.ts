import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NODE_STATES } from '../../../../src/nodes/registry/node-state.ts'
import type { Database } from '../../../../src/storage/database.ts'
import { DATABASE_KINDS, type DatabaseSource, startDatabases } from '../../../support/databases.ts'

describe.each(DATABASE_KINDS)('2026-11-21d-nodes on %s', (kind) => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases(kind)
    database = await source.open()
    await sql`
      insert into nodes (node_id, account_id, name, created_at)
      values ('one', gen_random_uuid(), 'rig', 0)`.execute(database.queries)
  }, 60_000)
  afterAll(() => source.stop())

  it.each([
    ['a state that there is not', sql`update nodes set state = 'BUSY'`],
    ['a machine with a negative memory', sql`update nodes set ram = -1`],
    ['an uptime below zero', sql`update nodes set total_uptime_seconds = -1`],
    ['hardware that was reported and is not there', sql`update nodes set hardware_at = 0`],
    ['a negative benchmark', sql`insert into node_benchmarks values ('one', 'm', -1, 0)`],
  ])('2026-11-21d-nodes refuses %s', async (_, statement) => {
    await expect(statement.execute(database.queries)).rejects.toMatchObject({ code: '23514' })
  })

  it('2026-11-21d-nodes refuses a benchmark of no node', async () => {
    const insert = sql`insert into node_benchmarks values ('nobody', 'm', 1, 0)`
    await expect(insert.execute(database.queries)).rejects.toMatchObject({ code: '23503' })
  })

  it('2026-11-21d-nodes takes every state that the code knows', async () => {
    for (const state of NODE_STATES)
      await sql`update nodes set state = ${state} where node_id = 'one'`.execute(database.queries)
  })
})
