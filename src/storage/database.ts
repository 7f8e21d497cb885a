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

/**
 * Where the data lives: a Postgres server, or a folder of our own that the embedded PGlite keeps.
 */
export type DatabaseLocation = { readonly url: string } | { readonly dataFolder: string }

/**
 * An open, migrated database. Stores are made from it; only storage/ and the stores of the rooms
 * (…-store.ts) look inside. The same queries and types work on both kinds (tables.ts).
 */
export type Database = {
  readonly kind: 'postgres' | 'embedded'
  /** For everything but commits. */
  readonly queries: Queries
  /**
   * For commits alone: connections of their own, so that no flood of history reads can starve the
   * committer.
   */
  readonly commits: Queries
  /** Locks and notices among the gateways on it; null where there is one at most. */
  readonly session: DatabaseSession | null
  /** Names of the migrations that this opening ran, oldest first. */
  readonly migrated: readonly string[]
  /** Encrypts what callers asked and were answered; null: that is stored in the clear. */
  readonly content: ContentCipher | null
  /** Ends all connections; a data folder may be opened again afterwards. */
  close(): Promise<void>
}

/**
 * Opens the database and runs outstanding migrations. Rejects with DatabaseUnfit when it is
 * reachable but could not keep what we promise, DatabaseNewer when a newer release migrated it,
 * DataFolderInUse when another process holds the folder, else with the driver's error.
 * `onConnectionError` is called with failures in the background: idle connections that broke,
 * upkeep of the embedded database. Queries report their own failures.
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

/** Folder of the embedded database within the data folder. */
export const DATABASE_FOLDER = 'database'

/**
 * Opens the Postgres server at `url`, or without one the embedded database in the data folder, and
 * migrates it. Rejects with StartFailure, whose message never holds the URL.
 */
export async function startDatabase(
  {
    url,
    dataFolder,
    contentKeys = null,
  }: {
    readonly url: string | null
    readonly dataFolder: string
    /** Keys of stored content; null for none. */
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
  // Refused connections to several addresses come as one error without a message of its own.
  const first = error instanceof AggregateError ? error.errors[0] : error
  const reason = first instanceof Error ? first.message : 'unknown fault'
  return `database: ${what} cannot be used: ${reason}`
}

/**
 * Asks the database for the least there is. Rejects with the driver's error when it does not
 * answer.
 */
export async function checkDatabase({ queries }: Pick<Database, 'queries'>): Promise<void> {
  await sql`select 1`.execute(queries)
}
