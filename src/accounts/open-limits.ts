import type { Logger } from '../observability/logger.ts'
import { createLoop } from '../runtime/loop.ts'
import type { Database } from '../storage/database.ts'
import { LEASE_SECONDS, type ProcessLease } from '../storage/process-lease.ts'
import { withBudgets } from './budgets.ts'
import { createBudgetsStore } from './budgets-store.ts'
import {
  createIdempotency,
  type Idempotency,
  type IdempotencyOptions,
  type WholeOrNot,
} from './idempotency.ts'
import { createIdempotencyStore } from './idempotency-store.ts'
import { createRateLimiter, type RateLimiter } from './limits/limiter.ts'
import type { Tiers } from './limits/tiers.ts'
import type { Prices } from './prices.ts'
import { createRateLimitsStore } from './rate-limits-store.ts'
import { createUsageStore, type UsageStore } from './usage-store.ts'

/**
 * What limits and counts calls, and makes them once. Call `stop` when no call runs, and while the
 * database is open.
 */
export type CallLimits<Stored> = {
  readonly limiter: RateLimiter
  readonly idempotency: Idempotency<Stored>
  /** What `limiter` counted, over time. */
  readonly usage: Pick<UsageStore, 'report'>
  stop(): Promise<void>
}

/** Opens what limits and counts calls, and makes them once. */
export function openLimits<Stored extends WholeOrNot>({
  database,
  lease,
  tiers,
  prices,
  log,
  ...verified
}: Pick<IdempotencyOptions<Stored>, 'findRecord' | 'notary' | 'settleLog'> & {
  readonly database: Database
  readonly lease: ProcessLease
  readonly tiers: () => Tiers
  readonly prices: () => Prices
  readonly log: Logger
}): CallLimits<Stored> {
  const limiter = withBudgets({
    limiter: createRateLimiter({
      store: createRateLimitsStore(database),
      tiers,
      prices,
      lease,
      leaseSeconds: LEASE_SECONDS,
      log,
    }),
    store: createBudgetsStore(database),
    prices,
    lease,
    log,
  })
  const idempotency = createIdempotency({
    ...verified,
    store: createIdempotencyStore(database),
    lease,
    now: () => performance.now(),
    log,
  })
  const usage = createUsageStore(database)
  const pruning = createLoop(async () => {
    await usage.prune().catch((error) => log.warn({ err: error }, 'old usage not removed'))
    return PRUNE_INTERVAL_MS
  })
  pruning.start()
  return {
    limiter,
    idempotency,
    usage,
    async stop() {
      await pruning.stop()
      await limiter.stop()
    },
  }
}

/** Between two removals of usage that is kept no more. */
const PRUNE_INTERVAL_MS = 60 * 60 * 1000
