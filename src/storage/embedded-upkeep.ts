/** As much of PGlite as upkeep needs. */
type Statements = {
  query<Row>(statement: string, parameters?: unknown[]): Promise<{ readonly rows: readonly Row[] }>
}

export type UpkeepLimits = {
  /** How often the write-ahead log is looked at, milliseconds. */
  readonly intervalMs: number
  /** How far it may grow until it is checkpointed, bytes. */
  readonly walBytesMax: number
}

/** A checkpoint of 64 MiB stalls the embedded database for some 0.1 s, and recovers in less than one second after a kill. */
export const UPKEEP_LIMITS: UpkeepLimits = { intervalMs: 15_000, walBytesMax: 64 * 1024 * 1024 }

/**
 * Does for the embedded database what a server's background processes do: without it, PGlite's write-ahead log grows
 * until the process ends (measured: 1.9 GiB, and 9 s of recovery after a kill), and the dead rows of anchors, which are
 * updated as the chain takes them, are never reused. `stop` resolves when no statement of it is left running.
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
