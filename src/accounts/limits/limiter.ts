import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { callerOf } from '../../api/authenticate.ts'
import type { ApiContext } from '../../api/context.ts'
import { ApiError, asError } from '../../api/errors.ts'
import { type InferenceFacts, recordInference } from '../../observability/call-scope.ts'
import type { Logger } from '../../observability/logger.ts'
import { familyOf } from '../../observability/model-family.ts'
import type { ProcessLease } from '../../storage/process-lease.ts'
import { type CallSize, type CallUse, computeUse, type Prices, TOKENS_MAX } from '../prices.ts'
import type {
  KeyUsage,
  LimitBucket,
  RateLimitsStore,
  Settlement,
  StepOutcome,
} from '../rate-limits-store.ts'
import {
  describeQuota,
  describeRefusal,
  describeUsage,
  type Quota,
  type QuotaRefusal,
  quotaHeaders,
  type RateLimitsReport,
} from './quota.ts'
import { type CallKind, findGroup, type Tiers, tierOf } from './tiers.ts'

/** A higher estimate counts as this number, which exceeds every limit. */
export const ESTIMATE_MAX = TOKENS_MAX

export type LimitedCall = {
  readonly accountId: string
  /** Null for the standard tier. */
  readonly tier: string | null
  readonly kind: CallKind
  /** As the caller wrote it. Empty if the call has no model. */
  readonly model: string
  /** Tokens that the call may use. */
  readonly estimate: number
  /**
   * How many tokens of `estimate` belong to the prompt, if known. The cost depends on this number.
   */
  readonly promptTokens?: number
  /**
   * The answers that the call asks for. With this member, budgets reserve the longest answers
   * beside `promptTokens`, in place of `estimate`.
   */
  readonly answers?: Answers
  /** How many images the call may make. */
  readonly images?: number
  /** Public id. `isBudgeted`: the key or its account has a budget (../budgets.ts). */
  readonly keyId?: string
  readonly isBudgeted?: boolean
  /** Default: the limiter's current prices. */
  readonly prices?: Prices
}

/** `tokensMax`: of each answer. Null if the request does not bound them. */
export type Answers = { readonly count: number; readonly tokensMax: number | null }

export type TokenEstimate = Pick<LimitedCall, 'estimate' | 'promptTokens' | 'answers'>

/** Call `settle` in a `finally`. */
export type Permit = {
  /** Null when nothing limits the call. */
  readonly quota: Quota | null
  /**
   * Records what the call really used, whether it succeeded or failed. `model` is for a call that
   * was admitted without a model: the tokens count for this model's group. Only the first
   * settlement counts. Any later settlement returns null.
   */
  settle(usedTokens: number, model?: string, promptTokens?: number, images?: number): CallUse | null
}

export type Decision =
  | { readonly kind: 'admitted'; readonly permit: Permit }
  | { readonly kind: 'refused'; readonly refusal: QuotaRefusal }

/** Limits of calls, shared by all gateways on one database. */
export type RateLimiter = {
  /**
   * Counts a call and reserves its estimate, or refuses it and counts nothing. Does not wait until
   * a call without a limit is counted. Rejects with the driver's error.
   */
  admit(call: LimitedCall): Promise<Decision>
  /** Includes the reservations of running calls. */
  report(account: {
    readonly accountId: string
    readonly tier: string | null
  }): Promise<RateLimitsReport>
  /** Resolves when the use of all earlier calls is counted. Rejects with the driver's error. */
  flush(): Promise<void>
  /** Writes the use that is not counted yet, then stops. */
  stop(): Promise<void>
}

/**
 * Counts the call and writes the remaining quota into the answer's headers. Settle the permit in a
 * `finally`. Throws ApiError `rate_limit_exceeded`, `insufficient_quota`, and `not_ready` when the
 * limits cannot be read. Must run behind `authenticate`.
 */
export async function admitCall(
  context: ApiContext,
  limiter: Pick<RateLimiter, 'admit'>,
  call: Pick<LimitedCall, 'kind' | 'model' | 'images'> & TokenEstimate,
): Promise<Permit> {
  recordInference(() => ({
    ...KNOWN_FACTS[call.kind],
    ...(call.model === '' ? {} : { model: call.model }),
  }))
  const { accountId, keyId, tier, isBudgeted = false } = callerOf(context.state)
  const decision = await decide(limiter, { ...call, accountId, keyId, tier, isBudgeted })
  if (decision.kind === 'admitted') {
    setQuotaHeaders(context, decision.permit.quota)
    return decision.permit
  }
  const { message, quota, retryAfterSeconds, isHopeless, limit } = decision.refusal
  recordInference(() => ({ limit }))
  setQuotaHeaders(context, quota)
  throw new ApiError('rate_limit_exceeded', message, {
    retryAfterSeconds,
    ...(isHopeless ? { shouldRetry: false } : {}),
  })
}

/** Known before the call runs. Providers of verified calls and of images are recorded later. */
const KNOWN_FACTS: Readonly<Record<CallKind, InferenceFacts>> = {
  chat: { operation: 'chat', provider: 'nodes' },
  verified: { operation: 'chat' },
  embeddings: { operation: 'embeddings', provider: 'upstream' },
  images: { operation: 'images' },
  search: { operation: 'search', provider: 'upstream' },
}

function setQuotaHeaders(context: ApiContext, quota: Quota | null): void {
  if (quota !== null) context.set(quotaHeaders(quota, context.state.face, Date.now()))
}

async function decide(limiter: Pick<RateLimiter, 'admit'>, call: LimitedCall): Promise<Decision> {
  try {
    return await limiter.admit(call)
  } catch (cause) {
    if (cause instanceof ApiError) throw cause
    throw new ApiError('not_ready', 'Limits cannot be checked at the moment, try again', { cause })
  }
}

type RateLimiterOptions = {
  readonly store: RateLimitsStore
  /** Read once for each call. The call keeps these tiers until it ends. */
  readonly tiers: () => Tiers
  /** Read once for each call. */
  readonly prices: () => Prices
  /**
   * Calls are counted for this process's id. `leaseSeconds` is how long other processes believe
   * that this process is alive.
   */
  readonly lease: Pick<ProcessLease, 'id'>
  readonly leaseSeconds: number
  readonly log: Logger
}

export function createRateLimiter(options: RateLimiterOptions): RateLimiter {
  const { store, tiers, prices } = options
  const queue = new StepQueue(options)

  async function admit({
    accountId,
    tier,
    estimate,
    prices: priced = prices(),
    ...call
  }: LimitedCall): Promise<Decision> {
    const ownTier = tierOf(tiers(), tier)
    const bucketOf = (model: string) => {
      const { name: group, limits } = findGroup(ownTier, { ...call, model })
      return { accountId, group, limits }
    }
    const bucket = bucketOf(call.model)
    const use = (size: CallSize) => {
      const used = computeUse(priced, size)
      const known = { accountId, keyId: call.keyId ?? '', operation: call.kind }
      queue.use({ ...known, ...describeUse(size.model, used) })
      return used
    }
    const { limits } = bucket
    if (Object.values(limits).every((limit) => limit === null)) {
      queue.count(bucket)
      const counted = { bucket, bucketOf, ticket: NOTHING_RESERVED }
      const permit = openPermit(queue, { ...counted, call, use }, null)
      return { kind: 'admitted', permit }
    }
    const reserved = limits.tokensPerMinute === null && limits.tokensPerDay === null ? 0 : estimate
    const { isAdmitted, used, at, processId: holder } = await queue.take(bucket, reserved)
    const usage = { limits, used, at }
    if (!isAdmitted) return { kind: 'refused', refusal: describeRefusal(usage, reserved) }
    const ticket = { processId: holder, minute: used.minute, day: used.day, reserved }
    const permit = openPermit(queue, { bucket, bucketOf, ticket, call, use }, describeQuota(usage))
    return { kind: 'admitted', permit }
  }

  return {
    admit,
    async report({ accountId, tier }) {
      await queue.flush()
      return describeUsage(tierOf(tiers(), tier), await store.read(accountId))
    },
    flush: () => queue.flush(),
    stop: () => queue.stop(),
  }
}

type Ticket = Pick<Settlement, 'processId' | 'minute' | 'day' | 'reserved'>

/** With this ticket, use counts in the windows that are current when the call ends. */
const NOTHING_RESERVED: Ticket = { processId: null, minute: 0, day: 0, reserved: 0 }

function openPermit(
  queue: StepQueue,
  counted: {
    readonly bucket: BucketName
    readonly bucketOf: (model: string) => BucketName
    readonly ticket: Ticket
    readonly call: Pick<LimitedCall, 'model'>
    /** Computes what the call used, and records it. */
    readonly use: (size: CallSize) => CallUse
  },
  quota: Quota | null,
): Permit {
  const { bucket, bucketOf, ticket, call, use: recordUse } = counted
  const settleIn = (where: BucketName, { reserved, ...windows }: Ticket, used: number) => {
    if (used === reserved && reserved === 0) return
    queue.settle(where, { ...windows, reserved, used, excess: Math.max(0, used - reserved) })
  }
  let isSettled = false
  return {
    quota,
    settle(usedTokens, model, promptTokens, images) {
      if (isSettled) return null
      isSettled = true
      // `model` is the caller's text. The database sums the use of calls with the same text.
      const use = recordUse({
        model: model ?? call.model,
        tokens: usedTokens,
        promptTokens,
        images,
      })
      const known = model === undefined ? bucket : bucketOf(model)
      if (known.group === bucket.group) settleIn(bucket, ticket, use.tokens)
      else {
        settleIn(bucket, ticket, 0)
        settleIn(known, NOTHING_RESERVED, use.tokens)
      }
      return use
    },
  }
}

const MODEL_LENGTH_MAX = 200

/** The database refuses some texts as a model's name, so the name is cut and cleaned. */
function describeUse(model: string, { tokens, promptTokens, money }: CallUse) {
  return {
    family: familyOf(model),
    model: model
      .slice(0, MODEL_LENGTH_MAX)
      .toWellFormed()
      .replace(/\p{Cc}/gu, '\uFFFD'),
    requests: 1,
    tokens,
    promptTokens: promptTokens ?? 0,
    completionTokens: promptTokens === null ? 0 : tokens - promptTokens,
    money: money ?? 0,
    unpricedRequests: money === null ? 1 : 0,
  }
}

/**
 * Delay of counts for which no caller waits. A longer delay would release reservations late. A
 * shorter delay would cause many steps in an embedded database.
 */
const LINGER_MS = 250
/**
 * Minimum time between two steps. In an embedded database, a step takes about a millisecond, for
 * one call or for thirty calls.
 */
const STEP_PAUSE_MS = 4
const RETRY_MS = 1_000
/** Maximum number of calls in a step. A larger step would delay other calls. */
const STEP_TAKES_MAX = 256

/** Maximum number of usages that wait for the database. A further usage counts as model `*`. */
const USAGES_MAX = 4_096

type BucketName = Pick<LimitBucket, 'accountId' | 'group' | 'limits'>

/** `processId` names the process for which the call is counted. */
type TakeOutcome = StepOutcome & { readonly at: number; readonly processId: string }

type Take = {
  readonly bucket: BucketName
  readonly estimate: number
  readonly resolve: (outcome: TakeOutcome) => void
  readonly reject: (error: Error) => void
}

/** Settlements and usages that were sent with one batch number. They may not be counted yet. */
type SentBatch = {
  readonly batch: number
  readonly processId: string
  readonly buckets: readonly LimitBucket[]
  readonly usages: readonly KeyUsage[]
}

type StepQueueOptions = Pick<RateLimiterOptions, 'lease' | 'leaseSeconds' | 'log'> & {
  readonly store: Pick<RateLimitsStore, 'step'>
}

/**
 * Collects requests to the database into few steps, one at a time. In a busy gateway, a call waits
 * at most STEP_PAUSE_MS longer. In an idle gateway, it does not wait.
 */
class StepQueue {
  private readonly options: StepQueueOptions
  private readonly takes: Take[] = []
  private settlements = new Map<
    string,
    { readonly bucket: BucketName; readonly byWindow: Map<string, Settlement> }
  >()
  private usages = new Map<string, KeyUsage>()
  private sent: SentBatch | null = null
  private lastBatch = 0
  private running: Promise<void> | null = null
  private timer: NodeJS.Timeout | null = null
  private failure: Error | null = null
  /** performance.now() when the last step ended. */
  private endedAtMs = Number.NEGATIVE_INFINITY

  constructor(options: StepQueueOptions) {
    this.options = options
  }

  /** Rejects with the driver's error: then the call may or may not be counted. */
  take(bucket: BucketName, estimate: number): Promise<TakeOutcome> {
    const { promise, resolve, reject } = Promise.withResolvers<TakeOutcome>()
    this.takes.push({ bucket, estimate, resolve, reject })
    this.start()
    return promise
  }

  /** Counts a call a little later. If the database fails, the call is not counted. */
  count(bucket: BucketName): void {
    const ignore = () => undefined
    this.takes.push({ bucket, estimate: 0, resolve: ignore, reject: ignore })
    if (this.takes.length >= STEP_TAKES_MAX) this.start()
    else this.schedule(LINGER_MS)
  }

  /** Retries until the database has the settlement or the process ends. */
  settle(bucket: BucketName, settlement: Settlement): void {
    const key = keyOf(bucket)
    const { byWindow } = this.settlements.get(key) ?? { byWindow: new Map<string, Settlement>() }
    const { processId, minute, day } = settlement
    const window = `${processId} ${minute} ${day}`
    byWindow.set(window, addUp(byWindow.get(window), settlement))
    this.settlements.set(key, { bucket, byWindow })
    this.schedule(LINGER_MS)
  }

  /** Retries until the database has the use. */
  use(usage: KeyUsage): void {
    const keyOfUse = ({ accountId, keyId, operation, family, model }: KeyUsage) =>
      `${accountId} ${keyId} ${operation} ${family} ${model}`
    const isFull = this.usages.size >= USAGES_MAX && !this.usages.has(keyOfUse(usage))
    const kept = isFull ? { ...usage, model: '*' } : usage
    const known = this.usages.get(keyOfUse(kept))
    this.usages.set(keyOfUse(kept), known === undefined ? kept : addUses(known, kept))
    this.schedule(LINGER_MS)
  }

  /** Resolves when all earlier requests are counted. Rejects with the driver's error. */
  async flush(): Promise<void> {
    // Later requests must not prolong the wait. The running step may have begun without the earlier
    // requests. Each further step sends all settlements and usages, and the oldest takes.
    const steps = 1 + Math.max(1, Math.ceil(this.takes.length / STEP_TAKES_MAX))
    for (let step = 0; step < steps && this.hasWork(); step++) {
      this.start()
      await this.running
      if (this.failure !== null) throw this.failure
    }
  }

  /** Sends the remaining requests once, then stops. */
  async stop(): Promise<void> {
    try {
      while (this.hasWork()) await this.flush()
    } catch (error) {
      this.options.log.error({ err: error }, 'usage was not settled')
    }
    if (this.timer !== null) clearTimeout(this.timer)
  }

  private hasWork(): boolean {
    const { takes, settlements, usages, sent } = this
    return takes.length > 0 || settlements.size > 0 || usages.size > 0 || sent !== null
  }

  private start(): void {
    this.running ??= this.run()
  }

  private schedule(delayMs: number): void {
    if (this.timer !== null || this.running !== null) return
    this.timer = setTimeout(() => {
      this.timer = null
      this.start()
    }, delayMs)
    this.timer.unref()
  }

  private async run(): Promise<void> {
    const pauseMs = Math.ceil(this.endedAtMs + STEP_PAUSE_MS - performance.now())
    // Calls in one turn of the event loop are sent together, even without a pause.
    await (pauseMs > 0 ? sleep(pauseMs) : setImmediate())
    this.failure = await this.send()
    this.endedAtMs = performance.now()
    this.running = null
    if (this.takes.length > 0) this.start()
    else if (this.hasWork()) this.schedule(this.failure === null ? LINGER_MS : RETRY_MS)
  }

  private async send(): Promise<Error | null> {
    const takes = this.takes.splice(0, STEP_TAKES_MAX)
    try {
      if (this.sent !== null) await this.resend(this.sent)
      const { leaseSeconds, store } = this.options
      const processId = this.options.lease.id()
      const { buckets, usages, takesOf } = this.gather(takes, processId)
      if (buckets.length === 0 && usages.length === 0) return null
      const batch = this.sent === null ? null : this.lastBatch
      const { at, outcomes } = await store.step({ processId, leaseSeconds, batch, buckets, usages })
      this.sent = null
      for (const [place, taken] of takesOf.entries())
        for (const [index, { resolve, reject }] of taken.entries()) {
          const outcome = outcomes[place]?.[index]
          if (outcome === undefined) reject(new Error('expected an outcome for every call'))
          else resolve({ ...outcome, at, processId })
        }
      return null
    } catch (error) {
      const reason = asError(error)
      for (const { reject } of takes) reject(reason)
      return reason
    }
  }

  /**
   * The batch may have been counted before. After this call it is counted exactly once, if this
   * process' lease ended at most 600 s before in the database.
   */
  private async resend(sent: SentBatch): Promise<void> {
    await this.options.store.step({ ...sent, leaseSeconds: this.options.leaseSeconds })
    this.sent = null
  }

  /**
   * Returns one bucket for each account and group. Keeps settlements and usages, to send them again
   * if this step fails.
   */
  private gather(takes: readonly Take[], processId: string) {
    const takesByKey = Map.groupBy(takes, ({ bucket }) => keyOf(bucket))
    const { settlements } = this
    const usages = [...this.usages.values()]
    this.settlements = new Map()
    this.usages = new Map()
    const keys = [...new Set([...takesByKey.keys(), ...settlements.keys()])]
    const takesOf = keys.map((key) => takesByKey.get(key) ?? [])
    const buckets = keys.flatMap((key, place): LimitBucket[] => {
      const bucket = takesOf[place]?.[0]?.bucket ?? settlements.get(key)?.bucket
      if (bucket === undefined) return []
      const estimates = takesOf[place]?.map(({ estimate }) => estimate) ?? []
      return [
        { ...bucket, estimates, settlements: [...(settlements.get(key)?.byWindow.values() ?? [])] },
      ]
    })
    if (settlements.size > 0 || usages.length > 0) {
      this.lastBatch++
      const kept = buckets.filter((bucket) => bucket.settlements.length > 0)
      this.sent = {
        batch: this.lastBatch,
        processId,
        buckets: kept.map((bucket) => ({ ...bucket, estimates: [] })),
        usages,
      }
    }
    return { buckets, usages, takesOf }
  }
}

function keyOf({ accountId, group }: BucketName): string {
  return `${accountId} ${group}`
}

function addUses(known: KeyUsage, more: KeyUsage): KeyUsage {
  return {
    ...known,
    requests: known.requests + more.requests,
    tokens: known.tokens + more.tokens,
    promptTokens: known.promptTokens + more.promptTokens,
    completionTokens: known.completionTokens + more.completionTokens,
    money: Math.min(known.money + more.money, Number.MAX_SAFE_INTEGER),
    unpricedRequests: known.unpricedRequests + more.unpricedRequests,
  }
}

function addUp(known: Settlement | undefined, more: Settlement): Settlement {
  if (known === undefined) return more
  return {
    ...known,
    reserved: known.reserved + more.reserved,
    used: known.used + more.used,
    excess: known.excess + more.excess,
  }
}
