import { chmod, mkdir, stat } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { PostgresDialect } from 'kysely'
import { loadOptional } from '../runtime/starting.ts'
import { startEmbeddedThread } from './embedded-thread.ts'
import { lockFolder } from './folder-lock.ts'
import { createEmbeddedPool, discardBroken, type OpenedDatabase } from './postgres.ts'

const PACKAGE = '@electric-sql/pglite'

const OWNER_ALONE = 0o700
const OTHERS = 0o077

/**
 * Opens the embedded PGlite in a folder of our own, which is made when it is missing and closed to
 * other users. What was committed survives a kill of the process, but not a power cut: PGlite does
 * not wait for the disk. Rejects with DataFolderInUse when another process holds the folder: two
 * would destroy each other's files.
 */
export async function openEmbedded(
  dataFolder: string,
  onError: (error: Error) => void,
  upkeepLimits = UPKEEP_LIMITS,
): Promise<OpenedDatabase> {
  await mkdir(dataFolder, { recursive: true })
  // PGlite lets all users write its files, under any umask: only the folder keeps others out.
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

/** As much of PGlite as upkeep needs. */
type Statements = {
  query<Row>(statement: string, parameters?: unknown[]): Promise<{ readonly rows: readonly Row[] }>
}

type UpkeepLimits = {
  /** How often the write-ahead log is looked at, milliseconds. */
  readonly intervalMs: number
  /** How far it may grow until it is checkpointed, bytes. */
  readonly walBytesMax: number
}

/**
 * A checkpoint of 64 MiB stalls the embedded database for some 0.1 s, and recovers in less than one
 * second after a kill.
 */
const UPKEEP_LIMITS: UpkeepLimits = { intervalMs: 15_000, walBytesMax: 64 * 1024 * 1024 }

/**
 * Does for the embedded database what a server's background processes do: without it, PGlite's
 * write-ahead log grows until the process ends (measured: 1.9 GiB, and 9 s of recovery after a
 * kill), and the dead rows of anchors, which are updated as the chain takes them, are never reused.
 * `stop` resolves when no statement of it is left running.
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
