import type { AdminLog, NewAct } from '../../accounts/admin-log-store.ts'
import type { Operator } from '../../api/context.ts'
import { asError } from '../../api/errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { createFaultLog } from '../../runtime/fault-log.ts'
import { createLoop, pause } from '../../runtime/loop.ts'
import { createErasuresStore, type DueContent, type ErasuresStore } from './erasures-store.ts'

const SWEEP_INTERVAL_MS = 60_000
/** Erasing this many records takes some milliseconds. Commits can run between two batches. */
const ERASE_MAX = 200
/** The pause between two batches. */
const BATCH_PAUSE_MS = 20
const ACCOUNTS_MAX = 500
const FAULT_LOG_INTERVAL_MS = 10 * 60_000

/** Erases content whose retention has ended, and stored content of erased accounts. */
type ErasureSweeper = {
  start(): void
  /** Resolves when all work has ended. */
  stop(): Promise<void>
  /** Examines all accounts once. Returns the number of erased records. */
  sweep(signal: AbortSignal): Promise<number>
}

export type EraseRecords = (
  of: Parameters<ErasuresStore['eraseRecords']>[0],
  order: Parameters<ErasuresStore['eraseRecords']>[1],
  by: Operator,
) => Promise<unknown>

/** Erases content for a customer. The act is recorded only if content was found. */
export function recordErasures(adminLog: Pick<AdminLog, 'record'>): EraseRecords {
  return (of, order, by) =>
    adminLog.record(
      by,
      (inside) => createErasuresStore(inside).eraseRecords(of, order),
      (done) => (done.erased > 0 ? [actOfErasure(of.hash, order.reason, done)] : []),
    )
}

/** Returns the act for the log of administrators' acts. */
export function actOfErasure(
  hash: string,
  reason: string,
  { found, erased }: { readonly found: number; readonly erased: number },
): NewAct {
  return { kind: 'erasure.record', target: hash, details: { reason, found, erased } }
}

/**
 * If several sweepers use one database, only one erases at a time. `retentionDays` applies to
 * accounts without a setting (null: their content is kept).
 */
export function createErasureSweeper({
  store,
  retentionDays,
  log,
  intervalMs = SWEEP_INTERVAL_MS,
}: {
  readonly store: ErasuresStore
  readonly retentionDays: number | null
  readonly log: Pick<Logger, 'info' | 'error'>
  readonly intervalMs?: number
}): ErasureSweeper {
  const faultLog = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())

  async function eraseAll(due: DueContent, signal: AbortSignal): Promise<number> {
    let count = 0
    while (!signal.aborted) {
      const erased = await store.eraseDue(due, ERASE_MAX)
      if (erased === 'busy' || erased === 0) break
      count += erased
      await pause(BATCH_PAUSE_MS, signal)
    }
    if (count > 0) log.info({ ...due, records: count }, 'content erased')
    return count
  }

  async function sweep(signal: AbortSignal): Promise<number> {
    let count = 0
    await store.forgetAnswers()
    let after: string | null = null
    do {
      const page: Awaited<ReturnType<ErasuresStore['listDue']>> = await store.listDue({
        after,
        limit: ACCOUNTS_MAX,
        retentionDays,
      })
      for (const due of page.due) count += await eraseAll(due, signal)
      after = page.cursor
    } while (after !== null && !signal.aborted)
    return count
  }

  const { start, stop } = createLoop(async (signal) => {
    try {
      await sweep(signal)
      faultLog.clear()
    } catch (fault) {
      const error = asError(fault)
      if (faultLog.isDue(`${error.name}: ${error.message}`))
        log.error({ err: error }, 'content not erased, trying again')
    }
    return intervalMs
  })
  return { start, stop, sweep }
}
