import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import { LEASE_SECONDS, type ProcessLease } from '../storage/process-lease.ts'
import {
  createIdempotency,
  type Idempotency,
  type IdempotencyOptions,
  type WholeOrNot,
} from './idempotency.ts'
import { createIdempotencyStore } from './idempotency-store.ts'
import { createRateLimiter, type RateLimiter } from './limits/limiter.ts'
import type { Tiers } from './limits/tiers.ts'
import { createRateLimitsStore } from './rate-limits-store.ts'

/**
 * What bounds calls, and makes them once. `stop` when no call runs any more, and while the database
 * is open.
 */
export type CallLimits<Stored> = {
  readonly limiter: RateLimiter
  readonly idempotency: Idempotency<Stored>
  stop(): Promise<void>
}

/** Opens what bounds calls, and makes them once. */
export function openLimits<Stored extends WholeOrNot>({
  database,
  lease,
  tiers,
  areEnclavesLocal,
  log,
  ...verified
}: Pick<IdempotencyOptions<Stored>, 'findRecord' | 'notary' | 'settleLog'> & {
  readonly database: Database
  readonly lease: ProcessLease
  readonly tiers: Tiers
  /** Whether all enclaves were started by this process, and so end with it. */
  readonly areEnclavesLocal: () => boolean
  readonly log: Logger
}): CallLimits<Stored> {
  const limiter = createRateLimiter({
    store: createRateLimitsStore(database),
    tiers,
    lease,
    leaseSeconds: LEASE_SECONDS,
    log,
  })
  const idempotency = createIdempotency({
    ...verified,
    store: createIdempotencyStore(database),
    lease,
    // The embedded database takes one process; enclaves may be added while it runs.
    isOnlyEnclave: () => database.kind === 'embedded' && areEnclavesLocal(),
    now: () => performance.now(),
    log,
  })
  return { limiter, idempotency, stop: () => limiter.stop() }
}
