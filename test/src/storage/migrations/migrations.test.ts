import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type Kysely, sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Database } from '../../../../src/storage/database.ts'
import { DATABASE_KINDS, type DatabaseSource, startDatabases } from '../../../support/databases.ts'

type Migration = {
  up(db: Kysely<unknown>): Promise<void>
  down(db: Kysely<unknown>): Promise<void>
}

const FOLDER = join(import.meta.dirname, '../../../../src/storage/migrations')

/** All migrations, oldest first. */
async function loadMigrations(): Promise<readonly Migration[]> {
  const files = (await readdir(FOLDER)).filter((file) => file.endsWith('.ts')).toSorted()
  return Promise.all(files.map((file) => import(join(FOLDER, file)) as Promise<Migration>))
}

describe.each(DATABASE_KINDS)('the migrations on %s', (kind) => {
  let source: DatabaseSource
  let database: Database
  beforeAll(async () => {
    source = await startDatabases(kind)
    database = await source.open()
  }, 60_000)
  afterAll(() => source.stop())

  /** Every column, constraint and index, in words. */
  async function describeSchema(): Promise<readonly unknown[]> {
    const { rows } = await sql`
      select table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable as fact
        from information_schema.columns where table_schema = 'public'
      union all
      select conrelid::regclass || ' ' || pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace
      union all
      select indexdef from pg_indexes where schemaname = 'public'
      order by fact`.execute(database.queries)
    return rows
  }

  it('the migrations leave nothing behind when undone, and make the same again', async () => {
    const before = await describeSchema()
    const queries = database.queries as unknown as Kysely<unknown>
    const migrations = await loadMigrations()
    for (const { down } of migrations.toReversed()) await down(queries)
    const tables = await database.queries.introspection.getTables()
    expect(tables).toEqual([])
    const { rows } = await sql`
      select proname from pg_proc where pronamespace = 'public'::regnamespace`.execute(queries)
    expect(rows).toEqual([])
    for (const { up } of migrations) await up(queries)
    expect(await describeSchema()).toEqual(before)
    expect(before.length).toBeGreaterThan(60)
  })

  it.each([
    ['an address in upper case', sql`insert into relayers values (${`0x${'AB'.repeat(20)}`}, 0)`],
    ['a nonce below zero', sql`insert into relayers values (${`0x${'ab'.repeat(20)}`}, -1)`],
    [
      'a digest of another length',
      sql`insert into attestation_documents values (decode('00', 'hex'), decode('00', 'hex'), 0)`,
    ],
    [
      'a key of no account',
      sql`insert into api_keys values ('x', gen_random_uuid(), decode(repeat('00', 32), 'hex'), 'x', 0, null)`,
    ],
    [
      'a key with a scope that there is not',
      sql`
        with account as (insert into accounts values (gen_random_uuid(), 'x', 0) returning id)
        insert into api_keys (id, account_id, secret_hash, name, created_at, scopes)
          select 'x', id, decode(repeat('00', 32), 'hex'), 'x', 0, '{inference,root}' from account`,
    ],
  ])('the migrated tables refuse %s', async (_, statement) => {
    await expect(statement.execute(database.queries)).rejects.toMatchObject({
      code: expect.stringMatching(/^23(514|503)$/),
    })
  })
})
