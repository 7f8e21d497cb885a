import { setTimeout as sleep } from 'node:timers/promises'
import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import type { Broadcaster, BroadcasterStatus } from './broadcaster.ts'
import type { RelayerBacklog, RelayersStore } from './relayers-store.ts'

/** How often the database is asked whose anchors wait, and leases are renewed. */
const FOLLOW_INTERVAL_MS = 3_000
/** Without a renewal for so long, another gateway may follow a relayer. */
const FOLLOW_LEASE_SECONDS = 15

/** Follows the anchors of every relayer that has some on their way, and tells of them as of one. */
export type RelayerFollowers = {
  start(): void
  /** As Broadcaster's, of this gateway's own relayer. */
  notify(): void
  /** Breaks off what runs, gives all leases back, and resolves when nothing is left running. */
  stop(): Promise<void>
  /**
   * As Broadcaster's: counts are of all relayers, the fault is the own relayer's or else that of
   * one followed here.
   */
  status(): BroadcasterStatus
  /**
   * The relayers that have anchors on their way, this gateway's own always among them. 0x, lower
   * case.
   */
  relayers(): readonly string[]
}

type RelayerFollowersOptions = {
  /** This gateway's own relayer, 0x, lower case. */
  readonly relayer: string
  readonly chainId: number
  readonly store: RelayersStore
  /**
   * Gives a broadcaster of a relayer's anchors, not yet started. No key is needed: they are signed.
   */
  readonly follow: (relayer: string) => Broadcaster
  /** A uuid of this process. */
  readonly holder: string
  readonly log: Logger
  readonly intervalMs?: number
}

/**
 * Gives the followers of all relayers. The gateway's own is always followed. One that others used
 * (a key that was rotated, a gateway that was retired) is followed while it has anchors that are
 * not confirmed, by whichever gateway has its lease. Two gateways that follow one relayer for a
 * moment do no harm: they send the same bytes.
 */
export function createRelayerFollowers(options: RelayerFollowersOptions): RelayerFollowers {
  return new Followers(options)
}

class Followers implements RelayerFollowers {
  readonly #options: RelayerFollowersOptions
  readonly #own: Broadcaster
  readonly #others = new Map<string, Broadcaster>()
  readonly #stopping = new AbortController()
  #backlogs: readonly RelayerBacklog[] = []
  #loop: Promise<void> | null = null
  #hasFailed = false

  constructor(options: RelayerFollowersOptions) {
    this.#options = options
    this.#own = options.follow(options.relayer)
  }

  start(): void {
    this.#own.start()
    this.#loop ??= this.#run()
  }

  // A function value, so that it can be passed on without its object.
  readonly notify = (): void => {
    this.#own.notify()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#loop
    await Promise.all([this.#own, ...this.#others.values()].map((broadcaster) => broadcaster.stop()))
    const { store, holder, log } = this.#options
    await store
      .release(holder)
      .catch((error: unknown) => log.debug({ err: asError(error) }, 'leases end by themselves'))
  }

  status(): BroadcasterStatus {
    const own = this.#own.status()
    const others = [...this.#others.values()].map((broadcaster) => broadcaster.status())
    const elsewhere = this.#backlogs.filter(({ relayer }) => relayer !== this.#options.relayer)
    const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)
    return {
      ...own,
      fault: own.fault ?? others.find(({ fault }) => fault !== null)?.fault ?? null,
      isChainFailing: own.isChainFailing || others.some(({ isChainFailing }) => isChainFailing),
      waitingCount: own.waitingCount + sum(elsewhere.map(({ waiting }) => waiting)),
      revertedCount: own.revertedCount + sum(others.map(({ revertedCount }) => revertedCount)),
      takenCount: own.takenCount + sum(others.map(({ takenCount }) => takenCount)),
    }
  }

  relayers(): readonly string[] {
    return [...new Set([this.#options.relayer, ...this.#backlogs.map(({ relayer }) => relayer)])]
  }

  async #run(): Promise<void> {
    const { intervalMs = FOLLOW_INTERVAL_MS } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      await this.#look().then(
        () => this.#note(null),
        (error: unknown) => this.#note(asError(error)),
      )
      await sleep(intervalMs, null, { signal }).catch(() => undefined)
    }
  }

  async #look(): Promise<void> {
    const { relayer: own, chainId, store, holder } = this.#options
    this.#backlogs = await store.listBacklogs(chainId)
    const lease = { holder, seconds: FOLLOW_LEASE_SECONDS }
    await store.lease({ ...lease, relayer: own, force: true })
    const waiting = this.#backlogs.filter(({ relayer }) => relayer !== own).map(({ relayer }) => relayer)
    for (const relayer of this.#others.keys()) if (!waiting.includes(relayer)) await this.#leave(relayer)
    for (const relayer of waiting) {
      if (await store.lease({ ...lease, relayer })) this.#enter(relayer)
      else await this.#leave(relayer)
    }
  }

  #enter(relayer: string): void {
    if (this.#others.has(relayer) || this.#stopping.signal.aborted) return
    const broadcaster = this.#options.follow(relayer)
    this.#others.set(relayer, broadcaster)
    broadcaster.start()
    this.#options.log.info({ relayer }, 'anchors of another relayer are on their way: it is followed')
  }

  async #leave(relayer: string): Promise<void> {
    const broadcaster = this.#others.get(relayer)
    if (broadcaster === undefined) return
    this.#others.delete(relayer)
    await broadcaster.stop()
    this.#options.log.info({ relayer }, 'another relayer is followed no more')
  }

  /**
   * Logs the first failure in a row alone. Whoever needs the database now reports that it is away.
   */
  #note(error: Error | null): void {
    if (error !== null && !this.#hasFailed)
      this.#options.log.warn({ err: error }, 'other relayers could not be looked for; tried again')
    this.#hasFailed = error !== null
  }
}
