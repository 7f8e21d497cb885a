import { type Kysely, sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createKeysStore } from '../../../../src/accounts/keys-store.ts'
import type { Database } from '../../../../src/storage/database.ts'
import { down, up } from '../../../../src/storage/migrations/2026-11-22-order-of-making.ts'
import { DATABASE_KINDS, type DatabaseSource, startDatabases } from '../../../support/databases.ts'

describe.each(DATABASE_KINDS)('2026-11-22-order-of-making on %s', (kind) => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases(kind)
    database = await source.open()
  }, 60_000)
  afterAll(() => source.stop())

  it('2026-11-22-order-of-making numbers what is there by its time, and what comes after it further on', async () => {
    const queries = database.queries as unknown as Kysely<unknown>
    const keys = createKeysStore(database)
    const open = (name: string, createdAt: number) =>
      keys.openAccount({ id: crypto.randomUUID(), name, createdAt })
    await down(queries)
    for (const [name, createdAt] of [
      ['c', 2],
      ['a', 1],
      ['b', 1],
    ] as const)
      await sql`insert into accounts values (gen_random_uuid(), ${name}, ${createdAt})`.execute(
        queries,
      )
    await up(queries)
    for (const name of ['z', 'y', 'x']) await open(name, 2)
    expect((await keys.listAccounts()).map(({ name }) => name)).toEqual([
      'a',
      'b',
      'c',
      'z',
      'y',
      'x',
    ])
  })

  it('2026-11-22-order-of-making leaves no column behind when undone, and makes the same again', async () => {
    const queries = database.queries as unknown as Kysely<unknown>
    const read = async () => database.queries.introspection.getTables()
    const before = await read()
    await down(queries)
    const names = (await read()).flatMap(({ columns }) => columns.map(({ name }) => name))
    expect(names.filter((name) => name === 'position')).toHaveLength(3)
    await up(queries)
    expect((await read()).map(({ columns }) => columns.length)).toEqual(
      before.map(({ columns }) => columns.length),
    )
  })
})
