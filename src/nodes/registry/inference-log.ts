import type { Logger } from '../../observability/logger.ts'
import { singleFlight } from '../../runtime/single-flight.ts'
import { DAY_SECONDS, type Inference, type InferencesStore } from './inferences-store.ts'

export type InferencesSink = { add(rows: readonly Inference[]): Promise<unknown> }

export const FLUSH_ROWS_MAX = 500

type InferenceLog = {
  add(row: Inference): void
  /** At most one insert runs at a time. Never rejects. */
  flush(): Promise<void>
  waiting(): number
}

/**
 * A log of served runs. Until the next flush (`tendMs`, a second), rows are in memory only, and a
 * kill -9 loses them. No payment depends on them. While the database cannot be reached, the newest
 * `inferencesMax` rows are kept. Each id is stored once, even after several tries.
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
    add(row) {
      rows.push(row)
      if (rows.length <= inferencesMax) return
      // Rows are dropped in blocks, because a drop copies the array.
      const dropped = Math.ceil(inferencesMax / 10)
      rows = rows.slice(dropped)
      log.error({ rows: dropped }, 'served runs dropped, the database is away')
    },
    flush: singleFlight(store),
    waiting: () => rows.length,
  }
}

/** How long single inferences and hourly sums are kept. Total counts are never removed. */
export const INFERENCE_AGE_MAX_SECONDS = 30 * DAY_SECONDS

const PRUNE_INTERVAL_MS = 60 * 60 * 1000

/**
 * Removes old inferences after each interval, but not at the start. A failure is logged, and the
 * next pruning removes the rest. `now` is Unix milliseconds.
 */
export function startInferenceUpkeep(options: {
  readonly inferences: Pick<InferencesStore, 'prune'>
  readonly now: () => number
  readonly log: Pick<Logger, 'warn'>
  readonly intervalMs?: number
}): { stop(): Promise<void> } {
  const { inferences, now, log, intervalMs = PRUNE_INTERVAL_MS } = options
  let pruning: Promise<void> | null = null

  async function prune(): Promise<void> {
    const unixSeconds = Math.floor(now() / 1000)
    try {
      await inferences.prune({ before: unixSeconds - INFERENCE_AGE_MAX_SECONDS, now: unixSeconds })
    } catch (error) {
      log.warn({ err: error }, 'old inferences not removed')
    }
  }

  const timer = setInterval(() => {
    pruning ??= prune().finally(() => {
      pruning = null
    })
  }, intervalMs)

  return {
    async stop() {
      clearInterval(timer)
      await pruning
    },
  }
}
