import { join } from 'node:path'
import { type Dialect, Kysely, sql } from 'kysely'
import type { Logger } from '../observability/logger.ts'
import { StartFailure } from '../runtime/starting.ts'
import type { ContentCipher } from './content-cipher.ts'
import { type ContentKeySource, openContentCipher } from './content-keys.ts'
import { openEmbedded } from './embedded.ts'
import { DatabaseNewer, DatabaseUnfit, DataFolderInUse } from './errors.ts'
import { migrateToLatest } from './migrate.ts'
import { openPostgres } from './postgres.ts'
import type { DatabaseSession } from './postgres-session.ts'
import type { Queries, Tables } from './tables.ts'

/** Where the data is: on a Postgres server, or in a folder of the embedded PGlite. */
export type DatabaseLocation = { readonly url: string } | { readonly dataFolder: string }

/**
 * An open, migrated database. Only storage/ and the stores in other folders (…-store.ts) use its
 * members. Both kinds of database have the same queries and types (tables.ts).
 */
export type Database = {
  readonly kind: 'postgres' | 'embedded'
  /** For all queries except commits. */
  readonly queries: Queries
  /**
   * For commits only. Commits have their own connections, so that history reads cannot block them.
   */
  readonly commits: Queries
  /**
   * Locks and notices between the gateways of this database. Null when only one gateway can use it.
   */
  readonly session: DatabaseSession | null
  /** Names of the migrations that ran at the opening, oldest first. */
  readonly migrated: readonly string[]
  /** Encrypts callers' requests and answers. Null: requests and answers are stored unencrypted. */
  readonly content: ContentCipher | null
  /** Ends all connections. A data folder can then be opened again. */
  close(): Promise<void>
}

/**
 * Opens the database and runs the migrations that it needs. Rejects with DatabaseUnfit when the
 * database answers but does not meet our requirements. Rejects with DatabaseNewer when a newer
 * release migrated it. Rejects with DataFolderInUse when another process has the folder open.
 * Otherwise rejects with the driver's error. `onConnectionError` is called with failures in the
 * background: broken idle connections, and failed upkeep of the embedded database. Queries report
 * their own failures.
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

/** Name of the embedded database's folder inside the data folder. */
export const DATABASE_FOLDER = 'database'

/**
 * Opens the Postgres server at `url`, or without `url` the embedded database in the data folder,
 * and migrates the database. Rejects with StartFailure, whose message never contains the URL.
 */
export async function startDatabase(
  {
    url,
    dataFolder,
    contentKeys = null,
  }: {
    readonly url: string | null
    readonly dataFolder: string
    /** Where the keys that encrypt stored content come from. Null without keys. */
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
  // If several addresses refuse a connection, the driver throws one error with an empty message,
  // which contains an error for each address.
  const first = error instanceof AggregateError ? error.errors[0] : error
  const reason = first instanceof Error ? first.message : 'unknown fault'
  return `database: ${what} cannot be used: ${reason}`
}

/**
 * Sends a very small query to the database. Rejects with the driver's error when it does not
 * answer.
 */
export async function checkDatabase({ queries }: Pick<Database, 'queries'>): Promise<void> {
  await sql`select 1`.execute(queries)
}
