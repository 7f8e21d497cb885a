import { join } from 'node:path'
import { type Dialect, Kysely, sql } from 'kysely'
import type { Logger } from '../observability/logger.ts'
import { DataFolderInUse } from '../runtime/folder-lock.ts'
import { StartFailure } from '../runtime/starting.ts'
import type { ContentCipher } from './content-cipher.ts'
import { type ContentKeySource, openContentCipher } from './content-keys.ts'
import { openEmbedded } from './embedded.ts'
import { DatabaseNewer, DatabaseUnfit, driverReason } from './errors.ts'
import { migrateToLatest } from './migrate.ts'
import { openPostgres } from './postgres.ts'
import type { DatabaseSession } from './postgres-session.ts'
import type { Queries, Tables } from './tables.ts'

/** A Postgres server, or a folder of the embedded PGlite. */
export type DatabaseLocation = { readonly url: string } | { readonly dataFolder: string }

/**
 * Only storage/ and the stores in other folders (…-store.ts) run queries. Both kinds of database
 * have the same queries and types (tables.ts).
 */
export type Database = {
  readonly kind: 'postgres' | 'embedded'
  /** For all queries except commits. */
  readonly queries: Queries
  /** Commits have their own connections, so that history reads cannot block them. */
  readonly commits: Queries
  /**
   * Locks and notices between the gateways of this database. Null when only one gateway can use it.
   */
  readonly session: DatabaseSession | null
  /** Migrations that ran when the database was opened, oldest first. */
  readonly migrated: readonly string[]
  /** Null: requests and answers are stored unencrypted. */
  readonly content: ContentCipher | null
  /** Closes the database. A data folder can then be opened again. */
  close(): Promise<void>
}

/**
 * Opens the database and migrates it. Throws DatabaseUnfit for a database that does not meet our
 * requirements, DatabaseNewer for the database of a newer release, DataFolderInUse, or the driver's
 * error. `onConnectionError` gets failures in the background: broken idle connections, and failed
 * upkeep of the embedded database.
 */
export async function openDatabase(
  location: DatabaseLocation,
  onConnectionError: (error: Error) => void = () => {},
  content: ContentCipher | null = null,
): Promise<Database> {
  const opened =
    'url' in location
      ? await openPostgres(location.url, onConnectionError)
      : await openEmbedded(location.dataFolder, onConnectionError)
  const queries = new Kysely<Tables>({ dialect: opened.dialect })
  const over = (dialect: Dialect | null) =>
    dialect === null ? queries : new Kysely<Tables>({ dialect })
  const commits = over(opened.commitDialect)
  const migrations = over(opened.migrationDialect)
  const close = async () => {
    await Promise.all([queries.destroy(), commits.destroy(), migrations.destroy()])
    await opened.close()
  }
  try {
    const migrated = await migrateToLatest(migrations)
    if (migrations !== queries) await migrations.destroy()
    const kind = 'url' in location ? 'postgres' : 'embedded'
    return { kind, queries, commits, session: opened.session, content, migrated, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Inside the data folder. */
export const DATABASE_FOLDER = 'database'

/**
 * Opens and migrates the database at `url`, or, if `url` is null, the embedded database in the data
 * folder. Throws StartFailure, whose message never contains the URL.
 */
export async function startDatabase(
  {
    url,
    dataFolder,
    contentKeys = null,
  }: {
    readonly url: string | null
    readonly dataFolder: string
    /** Null: stored content is not encrypted. */
    readonly contentKeys?: ContentKeySource | null
  },
  log: Pick<Logger, 'warn'>,
): Promise<Database> {
  const content = await openContentCipher(contentKeys)
  const location = url === null ? { dataFolder: join(dataFolder, DATABASE_FOLDER) } : { url }
  try {
    return await openDatabase(
      location,
      (error) => log.warn({ err: error }, 'database connection broke'),
      content,
    )
  } catch (error) {
    const what =
      'url' in location ? 'DATABASE_URL' : `the embedded database in ${location.dataFolder}`
    throw new StartFailure(describe(error, what), { cause: error })
  }
}

function describe(error: unknown, what: string): string {
  const isKnown =
    error instanceof StartFailure ||
    error instanceof DataFolderInUse ||
    error instanceof DatabaseUnfit ||
    error instanceof DatabaseNewer
  if (isKnown) return `database: ${error.message}`
  return `database: ${what} cannot be used: ${driverReason(error)}`
}

/** Throws the driver's error when the database does not answer. */
export async function checkDatabase({ queries }: Pick<Database, 'queries'>): Promise<void> {
  await sql`select 1`.execute(queries)
}
