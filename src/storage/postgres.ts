import type { Duplex } from 'node:stream'
import {
  type Dialect,
  type PostgresCursor,
  PostgresDialect,
  type PostgresPool,
  type PostgresPoolClient,
  type PostgresQueryResult,
} from 'kysely'
import pg from 'pg'
import { createLoop } from '../runtime/loop.ts'
import { DatabaseAwayError, DatabaseUnfit, driverReason } from './errors.ts'
import { createPostgresSession, type DatabaseSession } from './postgres-session.ts'
import { statementName } from './prepared.ts'
import { parseInt8 } from './tables.ts'

type PostgresLimits = {
  /** Connections for the history, keys and the broadcaster. */
  readonly queryConnectionsMax: number
  /**
   * Only one commit runs at a time. If its connection breaks, the log is read again over the second
   * connection.
   */
  readonly commitConnectionsMax: number
  /** Longest wait for a free or new connection. */
  readonly connectTimeoutMs: number
  /**
   * The server ends a statement after this time. 0: never. A full batch's commit takes much less
   * than one second.
   */
  readonly statementTimeoutMs: number
  /**
   * After this time without an answer, the client closes the connection, because the server or the
   * network has failed. 0: never.
   */
  readonly queryTimeoutMs: number
  /** A connection that is idle for this time is probed, to detect a dead server. */
  readonly keepAliveAfterMs: number
  /** Longest wait for the answer to a probe. A probe is sent every second. */
  readonly probeTimeoutMs: number
  /**
   * A server that has answered no probe for this time counts as away. All queries then fail at
   * once, except commits, whose outcome must be known.
   */
  readonly silenceMaxMs: number
}

export const POSTGRES_LIMITS: PostgresLimits = {
  queryConnectionsMax: 8,
  commitConnectionsMax: 2,
  connectTimeoutMs: 5_000,
  statementTimeoutMs: 15_000,
  queryTimeoutMs: 17_000,
  keepAliveAfterMs: 10_000,
  probeTimeoutMs: 2_000,
  silenceMaxMs: 5_000,
}

const PROBE_INTERVAL_MS = 1_000

/**
 * If `commitDialect` or `migrationDialect` is null, `dialect` also runs those queries, over its
 * only connection.
 */
export type OpenedDatabase = {
  readonly dialect: Dialect
  readonly commitDialect: Dialect | null
  /**
   * Has no time limits, because the migration of a large table, or another gateway's migration, may
   * take long.
   */
  readonly migrationDialect: Dialect | null
  /** Null when no other process uses the database. */
  readonly session: DatabaseSession | null
  /** Ends the session, the probes and the pools. Call this after the dialects have ended. */
  close(): Promise<void>
}

/**
 * Opens pools and checks the server's settings. Each session sets synchronous_commit, so that
 * acknowledged data survives a crash of the server, even if the server's default is weaker, and the
 * isolation level that the statements need. Needs a direct connection or a pooler in session mode,
 * because settings are sent as start-up parameters.
 */
export async function openPostgres(
  url: string,
  onConnectionError: (error: Error) => void,
  limits: PostgresLimits = POSTGRES_LIMITS,
): Promise<OpenedDatabase> {
  const queryPool = createPool(url, {
    ...limits,
    max: limits.queryConnectionsMax,
    onConnectionError,
  })
  const commitPool = createPool(url, {
    ...limits,
    max: limits.commitConnectionsMax,
    onConnectionError,
  })
  const untimed = { ...limits, statementTimeoutMs: 0, queryTimeoutMs: 0 }
  const migrationPool = createPool(url, { ...untimed, max: 1, onConnectionError })
  const { probeTimeoutMs } = limits
  const timely = { connectTimeoutMs: probeTimeoutMs, queryTimeoutMs: probeTimeoutMs }
  const probePool = createPool(url, { ...limits, ...timely, max: 1, onConnectionError })
  const pools = [queryPool, commitPool, migrationPool, probePool]
  try {
    await checkServer(queryPool)
  } catch (error) {
    await endPools(pools)
    throw error
  }
  const session = createPostgresSession(url, onConnectionError)
  const silence = watchSilence(probePool, limits.silenceMaxMs, onConnectionError)
  return {
    dialect: new PostgresDialect({ pool: discardBroken(queryPool, silence.signal) }),
    commitDialect: new PostgresDialect({ pool: discardBroken(commitPool) }),
    migrationDialect: new PostgresDialect({ pool: discardBroken(migrationPool) }),
    session,
    close: async () => {
      await silence.stop()
      await session.close()
      await endPools(pools)
    },
  }
}

/** `options` in the URL replace these. */
const SESSION_OPTIONS = '-c synchronous_commit=on -c default_transaction_isolation=read\\ committed'

function createPool(
  url: string,
  options: PostgresLimits & {
    readonly max: number
    readonly onConnectionError: (error: Error) => void
  },
): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max: options.max,
    application_name: 'affidavit',
    connectionTimeoutMillis: options.connectTimeoutMs,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    keepAliveInitialDelayMillis: options.keepAliveAfterMs,
    statement_timeout: options.statementTimeoutMs,
    idle_in_transaction_session_timeout: options.statementTimeoutMs,
    query_timeout: options.queryTimeoutMs,
    options: SESSION_OPTIONS,
    types: { getTypeParser },
  })
  // Without these listeners, a connection that the server drops would end the process. The pool
  // reports errors of idle connections. A client that was taken from the pool reports errors while
  // it runs no query.
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', options.onConnectionError))
  return pool
}

/** A pool with one connection, for a database with one session and no time limits. */
export function createEmbeddedPool(connect: () => Duplex): pg.Pool {
  const pool = new pg.Pool({
    max: 1,
    user: 'postgres',
    database: 'template1',
    idleTimeoutMillis: 0,
    stream: connect,
    // An earlier connection may have left prepared statements and an open transaction.
    onConnect: (client) => client.query('rollback; deallocate all').then(() => undefined),
    types: { getTypeParser },
  })
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  return pool
}

/**
 * Closes every connection that fails, except after an error that the server reported. The pool
 * alone would reuse a failed connection: after a timed-out query, the next query would wait until
 * TCP gives up, a quarter of an hour later.
 */
export function discardBroken(
  pool: pg.Pool,
  silence: () => AbortSignal = () => NEVER,
): PostgresPool {
  return {
    options: pool.options,
    connect: async () => {
      silence().throwIfAborted()
      return watchClient(await connect(pool), silence)
    },
    end: () => pool.end(),
  }
}

const NEVER = new AbortController().signal

/**
 * Probes the server over a separate connection. After `silenceMaxMs` of silence, the signal is
 * aborted with a DatabaseAwayError, and `onSilence` is called once. One failed probe is not enough,
 * because this process itself may have been blocked.
 */
function watchSilence(
  pool: pg.Pool,
  silenceMaxMs: number,
  onSilence: (error: Error) => void,
): { readonly signal: () => AbortSignal; stop(): Promise<void> } {
  const probing = discardBroken(pool)
  let silence = new AbortController()
  let answeredAt = performance.now()
  let failures = 0

  async function probe(): Promise<void> {
    const client = await probing.connect()
    try {
      await client.query('select 1', [])
    } finally {
      client.release()
    }
  }

  const loop = createLoop(async () => {
    try {
      await probe()
      answeredAt = performance.now()
      failures = 0
      if (silence.signal.aborted) silence = new AbortController()
    } catch {
      failures += 1
      const silentMs = performance.now() - answeredAt
      if (failures > 1 && silentMs >= silenceMaxMs && !silence.signal.aborted) {
        const text = `the server has answered nothing for ${Math.round(silentMs)} ms`
        const error = new DatabaseAwayError(text)
        silence.abort(error)
        onSilence(error)
      }
    }
    return PROBE_INTERVAL_MS
  })
  // A server that has just opened a connection is not silent, so the first probe comes later.
  const start = setTimeout(() => loop.start(), PROBE_INTERVAL_MS)
  start.unref()
  return {
    signal: () => silence.signal,
    stop: () => {
      clearTimeout(start)
      return loop.stop()
    },
  }
}

/** Settles like the promise, or rejects with the signal's reason if the signal is aborted first. */
async function until<Value>(promise: Promise<Value>, signal: AbortSignal): Promise<Value> {
  const aborted = Promise.withResolvers<never>()
  const abort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', abort)
  if (signal.aborted) abort()
  try {
    return await Promise.race([promise, aborted.promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** Throws DatabaseAwayError for every failure to connect, even if the server states a reason. */
async function connect(pool: pg.Pool): Promise<pg.PoolClient> {
  try {
    return await pool.connect()
  } catch (error) {
    throw awayError(error)
  }
}

function watchClient(client: pg.PoolClient, silence: () => AbortSignal): PostgresPoolClient {
  let isBroken = false
  function query<Row>(
    statement: string,
    parameters: readonly unknown[],
  ): Promise<PostgresQueryResult<Row>>
  function query<Row>(cursor: PostgresCursor<Row>): PostgresCursor<Row>
  function query(statement: unknown, parameters: readonly unknown[] = []): unknown {
    if (typeof statement !== 'string')
      throw new TypeError('expected a statement; cursors are not used here')
    const name = statementName(statement)
    const asked = {
      text: statement,
      values: [...parameters],
      ...(name === null ? {} : { name }),
    }
    return until(client.query(asked), silence()).catch((error: unknown) => {
      isBroken ||= !(error instanceof pg.DatabaseError)
      if (error instanceof DatabaseAwayError) throw error
      throw isConnectionLost(error) ? awayError(error) : error
    })
  }
  return { query, release: () => client.release(isBroken) }
}

/**
 * True for SQLSTATE class 08, for a server that ends a session (PostgreSQL, appendix A: 57P01 to
 * 57P05), and for an error that the server did not report. False if the driver cannot encode or
 * decode a value.
 */
function isConnectionLost(error: unknown): boolean {
  if (error instanceof pg.DatabaseError) return /^(?:08...|57P0[1-5])$/.test(error.code ?? '')
  return !(
    error instanceof TypeError ||
    error instanceof RangeError ||
    error instanceof SyntaxError
  )
}

function awayError(cause: unknown): DatabaseAwayError {
  return new DatabaseAwayError(driverReason(cause), { cause })
}

async function endPools(pools: readonly pg.Pool[]): Promise<void> {
  await Promise.all(pools.map((pool) => (pool.ending ? undefined : pool.end())))
}

const INT8_OID = 20

const getTypeParser: typeof pg.types.getTypeParser = (oid, format?: 'text' | 'binary') =>
  oid === INT8_OID && format !== 'binary'
    ? parseInt8
    : pg.types.getTypeParser(oid, format as 'text')

async function checkServer(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<Record<'encoding' | 'synced' | 'isolation', string>>(
    `select current_setting('server_encoding') as encoding, current_setting('synchronous_commit') as synced,
      current_setting('default_transaction_isolation') as isolation`,
  )
  const { encoding, synced, isolation } = rows[0] ?? {
    encoding: 'unknown',
    synced: 'unknown',
    isolation: 'unknown',
  }
  if (encoding !== 'UTF8')
    throw new DatabaseUnfit(
      `expected a database with encoding UTF8, got ${encoding}: create it with UTF8`,
    )
  if (synced !== 'on')
    throw new DatabaseUnfit(
      `expected synchronous_commit on, got ${synced}: remove it from DATABASE_URL`,
    )
  // A statement that has waited for a row must read the row as the other transaction left it.
  if (isolation !== 'read committed')
    throw new DatabaseUnfit(
      `expected default_transaction_isolation read committed, got ${isolation}: remove the options from DATABASE_URL`,
    )
}
