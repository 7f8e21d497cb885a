import { type Dialect, Kysely } from 'kysely'
import { openEmbedded } from './embedded.ts'
import { migrateToLatest } from './migrate.ts'
import { openPostgres } from './postgres.ts'
import type { Queries, Tables } from './tables.ts'

/** Where the data lives: a Postgres server, or a folder of our own that the embedded PGlite keeps. */
export type DatabaseLocation = { readonly url: string } | { readonly dataFolder: string }

/**
 * An open, migrated database. Stores are made from it; only src/stores looks inside.
 * The same queries and types work on both kinds (tables.ts).
 */
export type Database = {
  readonly kind: 'postgres' | 'embedded'
  /** For everything but commits. */
  readonly queries: Queries
  /** For commits alone: connections of their own, so that no flood of history reads can starve the committer. */
  readonly commits: Queries
  /** Ends all connections; a data folder may be opened again afterwards. */
  close(): Promise<void>
}

/**
 * Opens the database and runs outstanding migrations. Rejects with DatabaseUnfit when it is reachable but could not keep
 * what we promise, DataFolderInUse when another process holds the folder, else with the driver's error.
 * `onConnectionError` hears of what fails in the background: idle connections that broke, upkeep of the embedded
 * database. Queries report their own failures.
 */
export async function openDatabase(
  location: DatabaseLocation,
  onConnectionError: (error: Error) => void = () => {},
): Promise<Database> {
  const opened =
    'url' in location
      ? await openPostgres(location.url, onConnectionError)
      : await openEmbedded(location.dataFolder, onConnectionError)
  const queries = new Kysely<Tables>({ dialect: opened.dialect })
  const over = (dialect: Dialect | null) => (dialect === null ? queries : new Kysely<Tables>({ dialect }))
  const commits = over(opened.commitDialect)
  const migrations = over(opened.migrationDialect)
  const close = async () => {
    await Promise.all([queries.destroy(), commits.destroy(), migrations.destroy()])
    await opened.close()
  }
  try {
    await migrateToLatest(migrations)
    if (migrations !== queries) await migrations.destroy()
  } catch (error) {
    await close()
    throw error
  }
  return { kind: 'url' in location ? 'postgres' : 'embedded', queries, commits, close }
}
