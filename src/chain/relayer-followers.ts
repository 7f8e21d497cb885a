import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createLoop } from '../runtime/loop.ts'
import type { DatabaseSession } from '../storage/postgres-session.ts'
import type { Broadcaster, BroadcasterStatus } from './broadcaster.ts'
import type { RelayerBacklog, RelayersStore } from './relayers-store.ts'

/** How often leases are renewed, and the database is asked for waiting anchors. */
const FOLLOW_INTERVAL_MS = 3_000
/** After this time without a renewal, another gateway may follow the relayer. */
const FOLLOW_LEASE_SECONDS = 15

/** Follows every relayer that has unconfirmed anchors. Reports one status for all relayers. */
export type RelayerFollowers = {
  start(): void
  /** Does the same as Broadcaster's `notify`, for this gateway's own relayer. */
  notify(): void
  /** Aborts the running work and releases all leases. Resolves when nothing runs. */
  stop(): Promise<void>
  /**
   * Returns the status as Broadcaster does. The counts are sums over all relayers. A fault of the
   * own relayer takes precedence.
   */
  status(): BroadcasterStatus
  /** This gateway's own relayer, and the relayers that have unconfirmed anchors. 0x, lower case. */
  relayers(): readonly string[]
}

/**
 * Decides which of several gateways brings the anchors of their common relayer onto the chain. A
 * lock of the database session decides, and ends with the gateway's process.
 */
export type RelayerTurn = {
  /** Returns true if this gateway has the turn, or cannot know this because the session is down. */
  isOurs(): boolean
  /**
   * Tries to get the turn until the returned function is called. Calls `onChange` when the turn is
   * gained or lost.
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
   * Returns a broadcaster for a relayer's anchors, not started. It needs no key, because the
   * anchors are signed.
   */
  readonly follow: (relayer: string) => Broadcaster
  /** A uuid of this process. */
  readonly holder: string
  /** Decides which gateway brings the own relayer's anchors onto the chain. Null: this gateway. */
  readonly turn?: RelayerTurn | null
  readonly log: Logger
  readonly intervalMs?: number
}

/**
 * Returns the followers of all relayers. A gateway always follows its own relayer. Other relayers
 * remain after a key was rotated or a gateway was retired. The gateway with the lease follows such
 * a relayer while the relayer has unconfirmed anchors. Two gateways may follow it for a moment:
 * they send the same bytes.
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
      // Only the first failure in a row is logged. Other parts report an unreachable database.
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
