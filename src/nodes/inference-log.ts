import type { Logger } from '../observability/logger.ts'
import type { Inference } from './inferences-store.ts'
import type { InferencesSink } from './ports.ts'

/** Rows in one insert. */
export const FLUSH_ROWS_MAX = 500

/** Served runs on their way to the database. */
export type InferenceLog = {
  /** Keeps a row; no call waits for it. */
  note(row: Inference): void
  /** Stores what is kept; at most one insert is under way. Never rejects. */
  flush(): Promise<void>
  waiting(): number
}

/**
 * Rows between a call's end and the next flush (`tendMs`, a second) are in memory alone: a kill -9 loses them, from figures that nothing is
 * paid by. While the database is away, the newest `inferencesMax` rows are kept; each id is stored once, however
 * often it is tried.
 */
export function createInferenceLog({
  sink,
  log,
  inferencesMax,
}: {
  readonly sink: InferencesSink
  readonly log: Logger
  readonly inferencesMax: number
}): InferenceLog {
  let rows: Inference[] = []
  let flushing: Promise<void> | null = null

  async function store(): Promise<void> {
    while (rows.length > 0) {
      const batch = rows.slice(0, FLUSH_ROWS_MAX)
      try {
        await sink.add(batch)
      } catch (error) {
        log.error({ err: error, rows: rows.length }, 'served runs not stored yet')
        return
      }
      const stored = new Set(batch)
      rows = rows.filter((row) => !stored.has(row))
    }
  }

  return {
    note(row) {
      rows.push(row)
      if (rows.length <= inferencesMax) return
      // Dropped in blocks: one at a time would copy the array for each.
      const dropped = Math.ceil(inferencesMax / 10)
      rows = rows.slice(dropped)
      log.error({ rows: dropped }, 'served runs dropped, the database is away')
    },
    flush() {
      flushing ??= store().finally(() => {
        flushing = null
      })
      return flushing
    },
    waiting: () => rows.length,
  }
}
