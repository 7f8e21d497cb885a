import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import {
  createIdempotency,
  type Idempotency,
  type IdempotencyOptions,
  type WholeOrNot,
} from './idempotency.ts'
import { createIdempotencyStore } from './idempotency-store.ts'
import { createRateLimiter, type RateLimiter } from './limits/limiter.ts'
import type { Tiers } from './limits/tiers.ts'
import { createProcessLease, LEASE_SECONDS } from './process-lease.ts'
import { createProcessesStore } from './processes-store.ts'
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

/**
 * Enters this process among the living, and opens what hangs on that. Rejects with the driver's
 * error.
 */
export async function openLimits<Stored extends WholeOrNot>({
  database,
  tiers,
  areEnclavesLocal,
  log,
  ...verified
}: Pick<IdempotencyOptions<Stored>, 'findRecord' | 'notary' | 'settleLog'> & {
  readonly database: Database
  readonly tiers: Tiers
  /** Whether all enclaves were started by this process, and so end with it. */
  readonly areEnclavesLocal: () => boolean
  readonly log: Logger
}): Promise<CallLimits<Stored>> {
  // The embedded database takes one process.
  const isAlone = database.kind === 'embedded'
  const makeId = () => crypto.randomUUID()
  const lease = createProcessLease({
    processes: createProcessesStore(database),
    makeId,
    isAlone,
    log,
  })
  await lease.start()
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
    // Others may be added while it runs.
    isOnlyEnclave: () => isAlone && areEnclavesLocal(),
    now: () => performance.now(),
    log,
  })
  return {
    limiter,
    idempotency,
    stop: async () => {
      await limiter.stop()
      await lease.stop()
    },
  }
}
