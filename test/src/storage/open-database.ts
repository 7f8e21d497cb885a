import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { sql } from 'kysely'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openDatabase, startDatabase } from '#src/storage/database.ts'
import { DatabaseNewer, DatabaseUnfit } from '#src/storage/errors.ts'
import { type DatabaseKind, type DatabaseSource, startDatabases } from '../../support/databases.ts'

/** What every database promises, whichever kind it is of. */
export function testOpenDatabase(kind: DatabaseKind): void {
  let source: DatabaseSource
  beforeAll(async () => {
    source = await startDatabases(kind)
  }, 60_000)
  afterAll(() => source.stop())

  it('openDatabase gives the same types for the same columns', async () => {
    const { queries } = await source.open()
    const { rows } = await sql`
      select 9007199254740991::bigint as whole, count(*) as count, 5::integer as small,
        decode('00ff', 'hex') as bytes, '6F9619FF-8B86-D011-B42D-00C04FC964FF'::uuid as id, 'ä'::text as text,
        null::bigint as nothing, true as yes`.execute(queries)
    const { bytes, ...others } = rows[0] as Readonly<Record<string, unknown>>
    expect(others).toEqual({
      whole: Number.MAX_SAFE_INTEGER,
      count: 1,
      small: 5,
      id: '6f9619ff-8b86-d011-b42d-00c04fc964ff',
      text: 'ä',
      nothing: null,
      yes: true,
    })
    expect(bytes).toBeInstanceOf(Uint8Array)
    expect([...(bytes as Uint8Array)]).toEqual([0, 255])
  })

  it('a query fails rather than to give a bigint that a number cannot hold', async () => {
    const { queries } = await source.open()
    await expect(sql`select 9007199254740993::bigint as whole`.execute(queries)).rejects.toThrow(
      RangeError,
    )
    expect((await sql`select 1 as whole`.execute(queries)).rows).toEqual([{ whole: 1 }])
  })

  it('a database that a newer release migrated is refused and left alone, and its migrations are named', async () => {
    const location = await source.locate()
    const first = await openDatabase(location)
    await sql`
      insert into kysely_migration (name, timestamp)
      values ('2126-01-01-later', '2126-01-01T00:00:00.000Z')`.execute(first.queries)
    await first.close()
    await expect(openDatabase(location)).rejects.toThrow(DatabaseNewer)
    if (!('url' in location)) return
    const log = { warn: () => undefined }
    await expect(startDatabase({ ...location, dataFolder: '' }, log)).rejects.toThrow(
      /^database: the database is newer than this release, which does not know its migration 2126-01-01-later: start the newer release, or restore/,
    )
  })

  it('a database of a time before the first release is refused and left alone, and the message says what to do', async () => {
    const location = await source.locate()
    const first = await openDatabase(location)
    await sql`update kysely_migration set name = '2026-11-21-verified-completions' where name = '2026-11-26-initial'`.execute(
      first.queries,
    )
    await first.close()
    await expect(openDatabase(location)).rejects.toThrow(DatabaseUnfit)
    await expect(openDatabase(location)).rejects.toThrow(
      /^a development version that was never released made this database, .* or remove the data folder/,
    )
  })

  it('a database keeps what was stored for the next opening, and migrates only once', async () => {
    const location = await source.locate()
    const first = await openDatabase(location)
    await sql`insert into relayers values (${`0x${'11'.repeat(20)}`}, 5)`.execute(first.queries)
    await first.close()
    const second = await openDatabase(location)
    expect(await second.queries.selectFrom('relayers').selectAll().execute()).toHaveLength(1)
    const { rows } = await sql`select name from kysely_migration order by name`.execute(
      second.queries,
    )
    const files = await readdir(path.join(import.meta.dirname, '../../../migrations'))
    const names = files
      .filter((file) => file.endsWith('.ts'))
      .map((file) => file.replace(/\.ts$/, ''))
    expect(rows).toEqual(names.toSorted().map((name) => ({ name })))
    await second.close()
  })

  it('a database refuses queries after it was closed', async () => {
    const database = await openDatabase(await source.locate())
    await database.close()
    await expect(sql`select 1`.execute(database.queries)).rejects.toThrow()
    await expect(sql`select 1`.execute(database.commits)).rejects.toThrow()
  })
}
