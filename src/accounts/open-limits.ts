import type { Route } from '../api/route.ts'
import type { Opening } from '../observability/logger.ts'
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
import { rateLimitRoutes } from './rate-limit-routes.ts'
import { createRateLimitsStore } from './rate-limits-store.ts'
import { usageRoutes } from './usage-routes.ts'
import { createUsageStore } from './usage-store.ts'

/** Opens rate limits, budgets, usage and idempotency. */
export function openLimits<Stored extends WholeOrNot>({
  database,
  lease,
  settings: { tiers, prices },
  log,
  onStarted,
  ...verified
}: Opening &
  Pick<IdempotencyOptions<Stored>, 'findRecord' | 'notary' | 'settleLog'> & {
    readonly database: Database
    readonly lease: ProcessLease
    readonly settings: { readonly tiers: () => Tiers; readonly prices: () => Prices }
  }): {
  readonly limiter: RateLimiter
  readonly idempotency: Idempotency<Stored>
  readonly routes: readonly Route[]
} {
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
  // When this runs, the database is open and no call has started.
  onStarted(async () => {
    await pruning.stop()
    await limiter.stop()
  })
  const flush = () => limiter.flush()
  return {
    limiter,
    idempotency,
    routes: [...rateLimitRoutes(limiter), ...usageRoutes({ usage, flush, now: Date.now })],
  }
}

const PRUNE_INTERVAL_MS = 60 * 60 * 1000
