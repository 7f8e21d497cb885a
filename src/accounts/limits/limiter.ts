import type { Logger } from '../../observability/logger.ts'
import type { RateLimitsStore } from '../rate-limits-store.ts'
import {
  describeQuota,
  describeRefusal,
  describeUsage,
  type Quota,
  type Refusal,
  type UsageReport,
} from './quota.ts'
import { type BucketName, createStepQueue, type StepQueue } from './step-queue.ts'
import { type CallKind, findGroup, type Tiers, tierOf } from './tiers.ts'

/** Larger estimates of tokens are all the same: none fits any limit. */
export const ESTIMATE_MAX = 1_000_000_000_000

/** A call that asks to be admitted. */
export type LimitedCall = {
  readonly accountId: string
  /** The account's tier; null for the standard one. */
  readonly tier: string | null
  readonly kind: CallKind
  /** As the caller wrote it; empty for a call without one. */
  readonly model: string
  /** Tokens that it may use; 0 for a call that uses none. */
  readonly estimate: number
}

/** An admitted call. Settle it in a `finally`, exactly once counts. */
export type Permit = {
  /** Null when nothing limits the call. */
  readonly quota: Quota | null
  /** Says what the call used in truth, however it ended. Only the first time counts. */
  settle(usedTokens: number): void
}

export type Decision =
  | { readonly kind: 'admitted'; readonly permit: Permit }
  | { readonly kind: 'refused'; readonly refusal: Refusal }

/** Limits of calls, shared by all gateways on one database. */
export type RateLimiter = {
  /**
   * Counts a call and reserves its estimate, or refuses it and counts nothing. A call that nothing
   * limits is counted a little later, and does not wait for the database. Rejects with the driver's
   * error when it cannot be told.
   */
  admit(call: LimitedCall): Promise<Decision>
  /** What the limiter has counted for an account, reservations of calls under way included. */
  report(account: {
    readonly accountId: string
    readonly tier: string | null
  }): Promise<UsageReport>
  /** Writes what is still to be counted, and ends. */
  stop(): Promise<void>
}

type RateLimiterOptions = {
  readonly store: RateLimitsStore
  readonly tiers: Tiers
  /**
   * Id of this process, as long as it is taken for alive (services/process-lease.ts), and how long
   * a lease lasts.
   */
  readonly processId: () => string
  readonly leaseSeconds: number
  readonly log: Logger
}

/** Gives the limiter over a store that all gateways share. */
export function createRateLimiter(options: RateLimiterOptions): RateLimiter {
  const { store, tiers, processId } = options
  const queue = createStepQueue(options)

  async function admit({ accountId, tier, estimate, ...call }: LimitedCall): Promise<Decision> {
    const { name: group, limits } = findGroup(tierOf(tiers, tier), call)
    const bucket = { accountId, group, limits }
    if (Object.values(limits).every((limit) => limit === null)) {
      queue.count(bucket)
      const free = { processId: processId(), minute: 0, day: 0, reserved: 0 }
      return { kind: 'admitted', permit: openPermit(queue, bucket, free, null) }
    }
    const reserved = limits.tokensPerMinute === null && limits.tokensPerDay === null ? 0 : estimate
    const { isAdmitted, used, at, processId: holder } = await queue.take(bucket, reserved)
    const usage = { limits, used, at }
    if (!isAdmitted) return { kind: 'refused', refusal: describeRefusal(usage, reserved) }
    const ticket = { processId: holder, minute: used.minute, day: used.day, reserved }
    return { kind: 'admitted', permit: openPermit(queue, bucket, ticket, describeQuota(usage)) }
  }

  return {
    admit,
    async report({ accountId, tier }) {
      await queue.flush()
      return describeUsage(tierOf(tiers, tier), await store.read(accountId))
    },
    stop: () => queue.stop(),
  }
}

type Ticket = {
  readonly processId: string
  readonly minute: number
  readonly day: number
  readonly reserved: number
}

function openPermit(
  queue: StepQueue,
  bucket: BucketName,
  ticket: Ticket,
  quota: Quota | null,
): Permit {
  let isSettled = false
  return {
    quota,
    settle(usedTokens) {
      if (isSettled) return
      isSettled = true
      const { reserved } = ticket
      // What a stranger claims is added up in the database, for all who settle in the same step.
      const used = Math.min(usedTokens, ESTIMATE_MAX)
      if (used === reserved && reserved === 0) return
      queue.settle(bucket, { ...ticket, used, excess: Math.max(0, used - reserved) })
    },
  }
}
