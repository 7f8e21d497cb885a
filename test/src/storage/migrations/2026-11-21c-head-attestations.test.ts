import { type Kysely, sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../../../../src/storage/database.ts'
import { down, up } from '../../../../src/storage/migrations/2026-11-21c-head-attestations.ts'
import { DATABASE_KINDS, type DatabaseSource, startDatabases } from '../../../support/databases.ts'

describe.each(DATABASE_KINDS)('2026-11-21c-head-attestations on %s', (kind) => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases(kind)
    database = await source.open()
  }, 60_000)
  afterAll(() => source.stop())

  it('2026-11-21c-head-attestations leaves nothing behind when undone, and makes the same again', async () => {
    const tables = async () =>
      (await database.queries.introspection.getTables()).map(({ name }) => name)
    const before = await tables()
    const queries = database.queries as unknown as Kysely<unknown>
    await down(queries)
    expect(await tables()).toEqual(before.filter((name) => name !== 'head_attestations'))
    await up(queries)
    expect(await tables()).toEqual(before)
  })

  it.each([
    ['a root of 31 bytes', { root: 31 }],
    ['a block hash of 33 bytes', { hash: 33 }],
    ['a size below 0', { size: -1 }],
    ['a block number below 0', { block: -1 }],
  ])(
    '2026-11-21c-head-attestations refuses %s',
    async (_, { root = 32, hash = 32, size = 0, block = 0 }: Record<string, number>) => {
      const insert = sql`
      insert into head_attestations values (1, ${size}, true, ${new Uint8Array(root)}, ${block},
        ${new Uint8Array(hash)}, ${new Uint8Array(1)}, 0)`
      await expect(insert.execute(database.queries)).rejects.toMatchObject({ code: '23514' })
    },
  )
})
