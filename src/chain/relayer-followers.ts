import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createLoop } from '../runtime/loop.ts'
import type { DatabaseSession } from '../storage/postgres-session.ts'
import type { Broadcaster, BroadcasterStatus } from './broadcaster.ts'
import type { RelayerBacklog, RelayersStore } from './relayers-store.ts'

/**
 * How often the leases are renewed. Also how often the database is asked which relayers have
 * waiting anchors.
 */
const FOLLOW_INTERVAL_MS = 3_000
/** If a lease was not renewed for this long, another gateway may follow the relayer. */
const FOLLOW_LEASE_SECONDS = 15

/**
 * Follows every relayer that has unconfirmed anchors. Reports the status of all relayers together.
 */
export type RelayerFollowers = {
  start(): void
  /** Does the same as `notify` of Broadcaster, for this gateway's own relayer. */
  notify(): void
  /** Aborts the running work and releases all leases. Resolves when nothing runs. */
  stop(): Promise<void>
  /**
   * Returns the status as Broadcaster does. The counts include all relayers. The fault is that of
   * the own relayer. If the own relayer has no fault, it is that of another relayer that is
   * followed here.
   */
  status(): BroadcasterStatus
  /** This gateway's own relayer, and the relayers that have unconfirmed anchors. 0x, lower case. */
  relayers(): readonly string[]
}

/**
 * If several gateways sign with the same relayer, only one of them brings the relayer's anchors
 * onto the chain. A lock of the database session decides which gateway. The lock ends when the
 * gateway's process ends.
 */
export type RelayerTurn = {
  /**
   * Returns true if this gateway has the turn. Also returns true while the session is down, because
   * then it is not known which gateway has the turn.
   */
  isOurs(): boolean
  /**
   * Starts to try to get the turn. Calls back when the turn is gained or lost. Returns a function
   * that ends this.
   */
  join(onChange: () => void): () => void
}

/** How often to try to get the turn while another gateway has it. */
const TURN_INTERVAL_MS = 1_000

/** Returns the turn for one relayer. */
export function createRelayerTurn(session: DatabaseSession, relayer: string): RelayerTurn {
  const name = `relayer ${relayer}`
  let isLocked = false
  return {
    isOurs: () => isLocked || !session.isUp(),
    join(onChange) {
      const tries = createLoop(async () => {
        if (isLocked) return TURN_INTERVAL_MS
        isLocked = await session.tryLock(name)
        if (isLocked) onChange()
        return TURN_INTERVAL_MS
      })
      const unsubscribe = session.subscribe({
        onNotice: () => undefined,
        onChange() {
          isLocked = false
          tries.wake()
        },
      })
      tries.start()
      return () => {
        unsubscribe()
        const end = async () => {
          await tries.stop()
          if (isLocked) await session.unlock(name, '')
        }
        void end()
      }
    },
  }
}

type RelayerFollowersOptions = {
  /** This gateway's own relayer, 0x, lower case. */
  readonly relayer: string
  readonly chainId: number
  readonly store: RelayersStore
  /**
   * Returns a broadcaster for a relayer's anchors, which is not started yet. The broadcaster needs
   * no key, because the anchors are already signed.
   */
  readonly follow: (relayer: string) => Broadcaster
  /** A uuid of this process. */
  readonly holder: string
  /**
   * Decides which gateway brings the own relayer's anchors onto the chain. If it is null, this
   * gateway always does.
   */
  readonly turn?: RelayerTurn | null
  readonly log: Logger
  readonly intervalMs?: number
}

/**
 * Returns the followers of all relayers. This gateway's own relayer is always followed. Other
 * relayers exist because a key was rotated or a gateway was retired. Such a relayer is followed
 * while it has unconfirmed anchors, by the gateway that has its lease. Two gateways may follow the
 * same relayer for a moment. This does no harm, because they send the same bytes.
 */
export function createRelayerFollowers(options: RelayerFollowersOptions): RelayerFollowers {
  const { relayer: ownRelayer, chainId, store, follow, holder, log } = options
  const { intervalMs = FOLLOW_INTERVAL_MS } = options
  const own = follow(ownRelayer)
  let leaveTurn: () => void = () => undefined
  const others = new Map<string, Broadcaster>()
  let backlogs: readonly RelayerBacklog[] = []
  let hasFailed = false

  async function look(signal: AbortSignal): Promise<void> {
    backlogs = await store.listBacklogs(chainId)
    const lease = { holder, seconds: FOLLOW_LEASE_SECONDS }
    await store.lease({ ...lease, relayer: ownRelayer, force: true })
    const waiting = backlogs
      .map(({ relayer }) => relayer)
      .filter((relayer) => relayer !== ownRelayer)
    for (const relayer of others.keys()) if (!waiting.includes(relayer)) await leave(relayer)
    for (const relayer of waiting) {
      if (!(await store.lease({ ...lease, relayer }))) await leave(relayer)
      else if (!signal.aborted) enter(relayer)
    }
  }

  function enter(relayer: string): void {
    if (others.has(relayer)) return
    const broadcaster = follow(relayer)
    others.set(relayer, broadcaster)
    broadcaster.start()
    log.info({ relayer }, 'another relayer has anchors on their way: it is followed')
  }

  async function leave(relayer: string): Promise<void> {
    const broadcaster = others.get(relayer)
    if (broadcaster === undefined) return
    others.delete(relayer)
    await broadcaster.stop()
    log.info({ relayer }, 'another relayer is no longer followed')
  }

  const loop = createLoop(async (signal) => {
    try {
      await look(signal)
      hasFailed = false
    } catch (error) {
      // Only the first failure in a row is logged. Other parts that need the database report that
      // it is unreachable.
      if (!hasFailed)
        log.warn({ err: asError(error) }, 'other relayers could not be listed; tried again')
      hasFailed = true
    }
    return intervalMs
  })

  return {
    start() {
      leaveTurn = options.turn?.join(() => own.notify()) ?? leaveTurn
      own.start()
      loop.start()
    },
    notify: () => own.notify(),
    async stop() {
      leaveTurn()
      await loop.stop()
      await Promise.all([own, ...others.values()].map((broadcaster) => broadcaster.stop()))
      await store
        .release(holder)
        .catch((error: unknown) =>
          log.debug({ err: asError(error) }, 'leases were not given back; they expire'),
        )
    },
    status() {
      const status = own.status()
      const followed = [...others.values()].map((broadcaster) => broadcaster.status())
      const elsewhere = backlogs.filter(({ relayer }) => relayer !== ownRelayer)
      const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)
      return {
        ...status,
        fault: status.fault ?? followed.find(({ fault }) => fault !== null)?.fault ?? null,
        isChainFailing:
          status.isChainFailing || followed.some(({ isChainFailing }) => isChainFailing),
        waitingCount: status.waitingCount + sum(elsewhere.map(({ waiting }) => waiting)),
        revertedCount:
          status.revertedCount + sum(followed.map(({ revertedCount }) => revertedCount)),
        takenCount: status.takenCount + sum(followed.map(({ takenCount }) => takenCount)),
      }
    },
    relayers: () => [...new Set([ownRelayer, ...backlogs.map(({ relayer }) => relayer)])],
  }
}
