import { promises as fs } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { sql } from 'kysely'
import { DEFAULT_MIGRATION_TABLE, FileMigrationProvider, Migrator } from 'kysely/migration'
import { DatabaseNewer } from './errors.ts'
import type { Queries } from './tables.ts'

const MIGRATION_FOLDER = path.join(import.meta.dirname, 'migrations')

/**
 * Brings the schema to the newest migration and gives the names of those it ran, oldest first; each
 * database runs each once, whichever of several gateways starts first. Throws DatabaseNewer when
 * the database has migrations that are not known here, and the first failing migration's error,
 * with everything of this run undone.
 */
export async function migrateToLatest(queries: Queries): Promise<readonly string[]> {
  const provider = new FileMigrationProvider({
    fs,
    path,
    migrationFolder: MIGRATION_FOLDER,
    import: (file) => import(pathToFileURL(file).href),
  })
  await refuseNewer(queries, new Set(Object.keys(await provider.getMigrations())))
  const { error, results = [] } = await new Migrator({ db: queries, provider }).migrateToLatest()
  if (error !== undefined) throw error
  return results.map((result) => result.migrationName)
}

async function refuseNewer(queries: Queries, known: ReadonlySet<string>): Promise<void> {
  const { rows: found } = await sql<{ is_migrated: boolean }>`
    select to_regclass(${DEFAULT_MIGRATION_TABLE}) is not null as is_migrated`.execute(queries)
  if (found[0]?.is_migrated !== true) return
  const { rows } = await sql<{ name: string }>`
    select name from ${sql.table(DEFAULT_MIGRATION_TABLE)} order by name`.execute(queries)
  const unknown = rows.flatMap(({ name }) => (known.has(name) ? [] : [name]))
  if (unknown.length > 0) throw new DatabaseNewer(unknown)
}
