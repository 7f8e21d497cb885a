import type { AdminLog } from '../../accounts/admin-log-store.ts'
import type {
  ErasureOperations,
  Operator,
  RetentionOperations,
} from '../../api/control-operations.ts'
import { asError } from '../../api/errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { createFaultLog } from '../../runtime/fault-log.ts'
import { createLoop, pause } from '../../runtime/loop.ts'
import { createErasuresStore, type DueContent, type ErasuresStore } from './erasures-store.ts'

/** How often content is looked for that is to be erased. */
const SWEEP_INTERVAL_MS = 60_000
/** Records that one statement erases: some milliseconds, so that commits go in between. */
const ERASE_MAX = 200
/** Pause between two of these. */
const BATCH_PAUSE_MS = 20
/** Accounts that one statement looks through. */
const ACCOUNTS_MAX = 500
/** While it lasts, a fault is logged again only this often. */
const FAULT_LOG_INTERVAL_MS = 10 * 60_000
/** Records that one operation over the control socket erases, well within its time. */
const OPERATION_ERASE_MAX = 2_000

/** Erases what was kept for long enough, or belongs to an account whose content was erased. */
export type ErasureSweeper = {
  start(): void
  /** Resolves when nothing is left running. */
  stop(): Promise<void>
  /** Looks through everything once. Gives of how many records the content was erased. */
  sweep(signal: AbortSignal): Promise<number>
}

/**
 * Erases what a customer asks for, and notes it among what administrators did, in one transaction;
 * not when nothing was erased.
 */
export function recordErasures(adminLog: Pick<AdminLog, 'within'>) {
  return (
    of: Parameters<ErasuresStore['eraseRecords']>[0],
    order: Parameters<ErasuresStore['eraseRecords']>[1],
    by: Operator,
  ): Promise<void> =>
    adminLog.within(by, async (inside, record) => {
      const { found, erased } = await createErasuresStore(inside).eraseRecords(of, order)
      const details = { reason: order.reason, found, erased }
      if (erased > 0) await record({ kind: 'erasure.record', target: of.hash, details })
    })
}

/**
 * Gives the sweeper, not yet started. Several gateways may have one on the same database: one
 * erases at a time. `retentionDays`: null keeps content, where the account has no value of its own.
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

/** What the operator asks of stored content. */
export function createErasureOperations(store: ErasuresStore): {
  readonly erasures: ErasureOperations
  readonly retention: RetentionOperations
} {
  return {
    erasures: {
      record: ({ hash, reason }) =>
        store.eraseRecords({ hash, accountId: null }, { by: 'operator', reason }),
      async account({ account, reason }) {
        const erased = await store.eraseAccount(account, { by: 'operator', reason })
        if (erased === null) return 'unknown_account'
        await store.forgetAnswers()
        return 'erased'
      },
      async remove(account) {
        const due = await store.findDue(account)
        if (due === null) return { records: 0, is_done: true }
        const records = await store.eraseDue(due, OPERATION_ERASE_MAX)
        return { records: records === 'busy' ? 0 : records, is_done: false }
      },
    },
    retention: {
      set: async ({ name, days }) =>
        (await store.setRetention(name, days)) ? 'set' : 'unknown_account',
    },
  }
}
