import { type Dialect, PostgresDialect } from 'kysely'
import pg from 'pg'
import { parseInt8 } from './int8.ts'

/** Connections for history, keys and the broadcaster. */
export const QUERY_CONNECTIONS_MAX = 8
/** One commit runs at a time; the second connection is for re-reading the log after the first one broke. */
export const COMMIT_CONNECTIONS_MAX = 2
/** Longest wait for a free or new connection. */
export const CONNECT_TIMEOUT_MS = 5_000
/** The server ends a statement after this; a commit of a full batch takes well under one second. */
export const STATEMENT_TIMEOUT_MS = 15_000
/** The client gives up a little later: the server, or the way to it, is gone. */
export const QUERY_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 2_000
/** TCP probes find a dead peer behind an idle connection. */
export const KEEP_ALIVE_AFTER_MS = 10_000

/** The server is reachable, but its settings would break a promise; the message says which and what to do. */
export class DatabaseUnfit extends Error {
  override readonly name = 'DatabaseUnfit'
}

/** A database that is ready for Kysely. `commitDialect` null: commits share the one connection of `dialect`. */
export type OpenedDatabase = {
  readonly dialect: Dialect
  readonly commitDialect: Dialect | null
  /** Gives back what outlives the dialects. */
  release(): Promise<void>
}

/**
 * Opens pools on a Postgres server and checks its settings. The session's synchronous_commit is set, so that what was
 * acknowledged survives a crash of the server even when its default was weakened. Needs a direct connection or a pooler
 * in session mode (settings travel as start-up parameters).
 */
export async function openPostgres(
  url: string,
  onConnectionError: (error: Error) => void,
): Promise<OpenedDatabase> {
  const queryPool = createPool(url, QUERY_CONNECTIONS_MAX, onConnectionError)
  const commitPool = createPool(url, COMMIT_CONNECTIONS_MAX, onConnectionError)
  try {
    await checkServer(queryPool)
  } catch (error) {
    await Promise.all([queryPool.end(), commitPool.end()])
    throw error
  }
  return {
    dialect: new PostgresDialect({ pool: queryPool }),
    commitDialect: new PostgresDialect({ pool: commitPool }),
    release: async () => {},
  }
}

function createPool(url: string, max: number, onConnectionError: (error: Error) => void): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max,
    application_name: 'affidavit',
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_AFTER_MS,
    statement_timeout: STATEMENT_TIMEOUT_MS,
    idle_in_transaction_session_timeout: STATEMENT_TIMEOUT_MS,
    query_timeout: QUERY_TIMEOUT_MS,
    options: '-c synchronous_commit=on',
    types: { getTypeParser },
  })
  // Without a listener, an idle connection that the server drops would end the process.
  pool.on('error', onConnectionError)
  return pool
}

const INT8_OID = 20

const getTypeParser: typeof pg.types.getTypeParser = (oid, format?: 'text' | 'binary') =>
  oid === INT8_OID && format !== 'binary' ? parseInt8 : pg.types.getTypeParser(oid, format as 'text')

async function checkServer(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ encoding: string; synchronous_commit: string }>(
    `select current_setting('server_encoding') as encoding, current_setting('synchronous_commit') as synchronous_commit`,
  )
  const { encoding, synchronous_commit } = rows[0] ?? { encoding: 'unknown', synchronous_commit: 'unknown' }
  if (encoding !== 'UTF8')
    throw new DatabaseUnfit(`expected a database with encoding UTF8, got ${encoding}: create it with UTF8`)
  if (synchronous_commit !== 'on')
    throw new DatabaseUnfit(
      `expected synchronous_commit on, got ${synchronous_commit}: remove it from DATABASE_URL`,
    )
}
