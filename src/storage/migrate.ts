import { promises as fs } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { sql } from 'kysely'
import { DEFAULT_MIGRATION_TABLE, FileMigrationProvider, Migrator } from 'kysely/migration'
import { DatabaseNewer, DatabaseUnfit } from './errors.ts'
import type { Queries } from './tables.ts'

const MIGRATION_FOLDER = path.join(import.meta.dirname, '../../migrations')

/**
 * Returns the migrations that it ran, oldest first. Each database runs each migration once, even if
 * several gateways start at the same time. Throws DatabaseNewer when the database has unknown
 * migrations, and DatabaseUnfit when it is older than the first release. If a migration fails, all
 * migrations of this run are undone.
 */
export async function migrateToLatest(queries: Queries): Promise<readonly string[]> {
  const provider = new FileMigrationProvider({
    fs,
    path,
    migrationFolder: MIGRATION_FOLDER,
    import: (file) => import(pathToFileURL(file).href),
  })
  await refuseOthers(queries, Object.keys(await provider.getMigrations()).toSorted())
  const { error, results = [] } = await new Migrator({ db: queries, provider }).migrateToLatest()
  if (error !== undefined) throw error
  return results.map((result) => result.migrationName)
}

/** The array has the names of this release's migrations, sorted. */
async function refuseOthers(
  queries: Queries,
  [initial = '', ...later]: readonly string[],
): Promise<void> {
  const { rows: found } = await sql<{ is_migrated: boolean }>`
    select to_regclass(${DEFAULT_MIGRATION_TABLE}) is not null as is_migrated`.execute(queries)
  if (found[0]?.is_migrated !== true) return
  const { rows } = await sql<{ name: string }>`
    select name from ${sql.table(DEFAULT_MIGRATION_TABLE)} order by name`.execute(queries)
  const names = rows.map(({ name }) => name)
  // All releases have the same first migration.
  if (names.length > 0 && !names.includes(initial))
    throw new DatabaseUnfit(
      'a development version that was never released made this database, and no release can read it: ' +
        'export its evidence with that version, then set DATABASE_URL to an empty database, or remove the data folder (DATA_DIR)',
    )
  const unknown = names.filter((name) => name !== initial && !later.includes(name))
  if (unknown.length > 0) throw new DatabaseNewer(unknown)
}
