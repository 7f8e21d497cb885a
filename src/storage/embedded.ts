import { chmod, mkdir, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { PostgresDialect } from 'kysely'
import { lockFolder } from '../runtime/folder-lock.ts'
import { loadOptional } from '../runtime/starting.ts'
import { startEmbeddedThread } from './embedded-thread.ts'
import { createEmbeddedPool, discardBroken, type OpenedDatabase } from './postgres.ts'

const PACKAGE = '@electric-sql/pglite'

const OWNER_ALONE = 0o700
const OTHERS = 0o077

/**
 * Opens the embedded PGlite, in a folder that other users cannot read. Committed data survives a
 * kill of the process, but may be lost in a power cut, because PGlite does not wait for the disk.
 * Throws DataFolderInUse when another process has the folder open: two processes would destroy each
 * other's files.
 */
export async function openEmbedded(
  dataFolder: string,
  onError: (error: Error) => void,
  upkeepLimits = UPKEEP_LIMITS,
): Promise<OpenedDatabase> {
  await mkdir(dataFolder, { recursive: true })
  // With any umask, PGlite's files are writable for all users. Only the folder's mode keeps users
  // out.
  if (((await stat(dataFolder)).mode & OTHERS) !== 0) await chmod(dataFolder, OWNER_ALONE)
  const lock = await lockFolder(dataFolder)
  try {
    await loadOptional(PACKAGE, () => createRequire(import.meta.url).resolve(PACKAGE), {
      purpose: 'the embedded database',
      instead: 'set DATABASE_URL to a Postgres server',
    })
    const thread = await startEmbeddedThread(dataFolder)
    const pool = createEmbeddedPool(() => thread.connect())
    const upkeep = startUpkeep(pool, upkeepLimits, onError)
    const end = async () => {
      await upkeep.stop()
      if (!pool.ending) await pool.end()
    }
    const close = async () => {
      await end()
      await thread.close()
      await lock.release()
    }
    return {
      dialect: new PostgresDialect({ pool: { ...discardBroken(pool), end } }),
      commitDialect: null,
      migrationDialect: null,
      session: null,
      close,
    }
  } catch (error) {
    await lock.release()
    throw error
  }
}

type Statements = {
  query<Row>(statement: string, parameters?: unknown[]): Promise<{ readonly rows: readonly Row[] }>
}

type UpkeepLimits = {
  /** How often the size of the write-ahead log is checked. */
  readonly intervalMs: number
  /** Size of the write-ahead log at which a checkpoint is made. */
  readonly walBytesMax: number
}

/**
 * At 64 MiB, a checkpoint blocks the database for about 0.1 s, and recovery after a kill takes less
 * than one second.
 */
const UPKEEP_LIMITS: UpkeepLimits = { intervalMs: 15_000, walBytesMax: 64 * 1024 * 1024 }

/**
 * Does the work of a server's background processes. Without this work, PGlite's write-ahead log
 * would grow until the process ends (measured: 1.9 GiB, and 9 s of recovery after a kill), and dead
 * rows would never be reused. Anchors make many dead rows, because new blocks change the state of
 * anchors. `stop` resolves when no upkeep statement is running.
 */
export function startUpkeep(
  database: Statements,
  limits: UpkeepLimits,
  onError: (error: Error) => void,
): { stop(): Promise<void> } {
  let checkpointedAt = '0/0'
  let running: Promise<void> = Promise.resolve()

  async function round(): Promise<void> {
    const { rows } = await database.query<{ lsn: string; grown: boolean }>(
      `select pg_current_wal_lsn()::text as lsn, pg_wal_lsn_diff(pg_current_wal_lsn(), $1::pg_lsn) >= $2 as grown`,
      [checkpointedAt, limits.walBytesMax],
    )
    if (rows[0]?.grown !== true) return
    await database.query('vacuum anchors')
    await database.query('checkpoint')
    checkpointedAt = rows[0].lsn
  }

  const timer = setInterval(() => {
    running = running.then(round).catch(onError)
  }, limits.intervalMs)
  timer.unref()
  return {
    stop: () => {
      clearInterval(timer)
      return running
    },
  }
}
