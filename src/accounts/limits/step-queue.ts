import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { asError } from '../../api/errors.ts'
import type { Logger } from '../../observability/logger.ts'
import type {
  LimitBucket,
  Limits,
  RateLimitsStore,
  Settlement,
  StepOutcome,
} from '../rate-limits-store.ts'

/** Whose calls to what are counted together. */
export type BucketName = {
  readonly accountId: string
  readonly group: string
  readonly limits: Limits
}

/** What became of one call, and which process it is counted for. */
type TakeOutcome = StepOutcome & { readonly at: number; readonly processId: string }

/** What the limiter asks of the database, gathered into few steps. */
export type StepQueue = {
  /**
   * Asks for one call. Rejects with the driver's error; whether the call was counted is then
   * unknown.
   */
  take(bucket: BucketName, estimate: number): Promise<TakeOutcome>
  /**
   * The same for a call that nobody waits for: it is counted a little later, and not at all when
   * the database fails.
   */
  count(bucket: BucketName): void
  /**
   * Settles, a little later, and again until the database has it. Nothing of it is lost but with
   * the process.
   */
  settle(bucket: BucketName, settlement: Settlement): void
  /** Resolves when all that was asked until now is counted. Rejects with the driver's error. */
  flush(): Promise<void>
  /** Sends what is left, once, and ends. */
  stop(): Promise<void>
}

/**
 * What nobody waits for goes with the next call, or after this: soon enough that reservations are
 * not held for nothing, and seldom enough that counting costs an embedded database little (a step
 * takes it some milliseconds).
 */
const LINGER_MS = 250
/**
 * From the end of one step to the next: a step costs the process about a millisecond with an
 * embedded database, whether it counts one call or thirty. Calls that come further apart do not
 * wait.
 */
const STEP_PAUSE_MS = 4
/** Pause before settlements are sent again that failed. */
const RETRY_MS = 1_000
/** Calls in one step: more would hold up others for longer than they should wait. */
const STEP_TAKES_MAX = 256

type StepQueueOptions = {
  readonly store: Pick<RateLimitsStore, 'step'>
  /** Id of this process, as long as it is taken for alive, and how long a lease lasts. */
  readonly processId: () => string
  readonly leaseSeconds: number
  readonly log: Logger
}

/**
 * Gives a queue that has one step under way at a time: whatever is asked meanwhile goes with the
 * next. An idle gateway adds no waiting; a busy one at most STEP_PAUSE_MS, and few statements.
 */
export function createStepQueue(options: StepQueueOptions): StepQueue {
  return new Queue(options)
}

type Take = {
  readonly bucket: BucketName
  readonly estimate: number
  readonly resolve: (outcome: TakeOutcome) => void
  readonly reject: (error: Error) => void
}

/** Settlements that were sent under one number; kept until it is certain that they were counted. */
type SentBatch = {
  readonly batch: number
  readonly processId: string
  readonly buckets: readonly LimitBucket[]
}

class Queue implements StepQueue {
  private readonly options: StepQueueOptions
  private readonly takes: Take[] = []
  private settlements = new Map<
    string,
    { readonly bucket: BucketName; readonly byWindow: Map<string, Settlement> }
  >()
  private sent: SentBatch | null = null
  private lastBatch = 0
  private running: Promise<void> | null = null
  private timer: NodeJS.Timeout | null = null
  private failure: Error | null = null
  /** When the last step ended, by performance.now(). */
  private endedAtMs = Number.NEGATIVE_INFINITY

  constructor(options: StepQueueOptions) {
    this.options = options
  }

  take(bucket: BucketName, estimate: number): Promise<TakeOutcome> {
    const { promise, resolve, reject } = Promise.withResolvers<TakeOutcome>()
    this.takes.push({ bucket, estimate, resolve, reject })
    this.start()
    return promise
  }

  count(bucket: BucketName): void {
    const nobody = () => undefined
    this.takes.push({ bucket, estimate: 0, resolve: nobody, reject: nobody })
    if (this.takes.length >= STEP_TAKES_MAX) this.start()
    else this.schedule(LINGER_MS)
  }

  settle(bucket: BucketName, settlement: Settlement): void {
    const key = keyOf(bucket)
    const { byWindow } = this.settlements.get(key) ?? { byWindow: new Map<string, Settlement>() }
    const { processId, minute, day } = settlement
    const window = `${processId} ${minute} ${day}`
    byWindow.set(window, addUp(byWindow.get(window), settlement))
    this.settlements.set(key, { bucket, byWindow })
    this.schedule(LINGER_MS)
  }

  async flush(): Promise<void> {
    while (this.hasWork()) {
      this.start()
      await this.running
      if (this.failure !== null) throw this.failure
    }
  }

  async stop(): Promise<void> {
    await this.flush().catch((error) =>
      this.options.log.error({ err: error }, 'usage was not settled'),
    )
    if (this.timer !== null) clearTimeout(this.timer)
  }

  private hasWork(): boolean {
    return this.takes.length > 0 || this.settlements.size > 0 || this.sent !== null
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
    // Calls that were read in the same turn go together, also when nothing is to be waited for.
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
      const processId = this.options.processId()
      const { buckets, takesOf } = this.gather(takes, processId)
      if (buckets.length === 0) return null
      const batch = this.sent === null ? null : this.lastBatch
      const { at, outcomes } = await store.step({ processId, leaseSeconds, batch, buckets })
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

  /** Its outcome was unknown: it is counted now, or was before. */
  private async resend({ batch, processId, buckets }: SentBatch): Promise<void> {
    await this.options.store.step({
      processId,
      leaseSeconds: this.options.leaseSeconds,
      batch,
      buckets,
    })
    this.sent = null
  }

  /**
   * One bucket for each account and group; with settlements, also what is to be sent again when
   * this fails.
   */
  private gather(takes: readonly Take[], processId: string) {
    const takesByKey = Map.groupBy(takes, ({ bucket }) => keyOf(bucket))
    const { settlements } = this
    this.settlements = new Map()
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
    if (settlements.size > 0) {
      this.lastBatch++
      const kept = buckets.filter((bucket) => bucket.settlements.length > 0)
      this.sent = {
        batch: this.lastBatch,
        processId,
        buckets: kept.map((bucket) => ({ ...bucket, estimates: [] })),
      }
    }
    return { buckets, takesOf }
  }
}

function keyOf({ accountId, group }: BucketName): string {
  return `${accountId} ${group}`
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
