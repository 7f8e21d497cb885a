import { promises as fs } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { FileMigrationProvider, Migrator } from 'kysely/migration'
import type { Queries } from './tables.ts'

const MIGRATION_FOLDER = path.join(import.meta.dirname, 'migrations')

/**
 * Brings the schema to the newest migration and gives the names of those it ran, oldest first; each
 * database runs each once, whichever of several gateways starts first. Throws the first failing
 * migration's error, with everything of this run undone.
 */
export async function migrateToLatest(queries: Queries): Promise<readonly string[]> {
  const provider = new FileMigrationProvider({
    fs,
    path,
    migrationFolder: MIGRATION_FOLDER,
    import: (file) => import(pathToFileURL(file).href),
  })
  const { error, results = [] } = await new Migrator({ db: queries, provider }).migrateToLatest()
  if (error !== undefined) throw error
  return results.map((result) => result.migrationName)
}
