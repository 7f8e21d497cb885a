import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createLoop } from '../runtime/loop.ts'
import type { DatabaseSession } from '../storage/postgres-session.ts'
import type { Broadcaster, BroadcasterStatus } from './broadcaster.ts'
import type { RelayerBacklog, RelayersStore } from './relayers-store.ts'

/** Interval between searches for relayers with unconfirmed anchors. A search renews leases. */
const FOLLOW_INTERVAL_MS = 3_000
/** Another gateway may follow a relayer whose lease was not renewed for this time. */
const FOLLOW_LEASE_SECONDS = 15

/** Runs a broadcaster for every relayer with unconfirmed anchors. Reports one status for all. */
export type RelayerFollowers = {
  start(): void
  /** Broadcaster's `notify` for this gateway's own relayer. */
  notify(): void
  /** Releases all leases. Resolves when nothing runs. */
  stop(): Promise<void>
  /** The counts are sums over all relayers. A fault of the own relayer takes precedence. */
  status(): BroadcasterStatus
  /** The own relayer, and the relayers that have unconfirmed anchors. 0x, lower case. */
  relayers(): readonly string[]
}

/**
 * The database lock of a relayer that several gateways share. Only the gateway with the lock sends
 * anchors. The lock ends with the gateway's process.
 */
type RelayerTurn = {
  /** Also true while the database session is down, because the lock's owner is then unknown. */
  isOurs(): boolean
  /** Tries to get the lock until the returned function is called. `onChange` runs on success. */
  join(onChange: () => void): () => void
}

const TURN_INTERVAL_MS = 1_000

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
  /** Returns a broadcaster that is not started. Needs no key: stored anchors are already signed. */
  readonly follow: (relayer: string) => Broadcaster
  /** Unique to this process. */
  readonly holder: string
  /** The lock of the own relayer. Null: this gateway always sends. */
  readonly turn?: RelayerTurn | null
  readonly log: Logger
  readonly intervalMs?: number
}

/**
 * A gateway always follows its own relayer. Other relayers remain after a key was rotated or a
 * gateway was retired: the gateway with the lease follows them while they have unconfirmed anchors.
 * For a moment, two gateways may follow the same relayer, and then send the same bytes.
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
      // Other parts report an unreachable database too, so one log line is enough.
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
        pendingCount: status.pendingCount + sum(elsewhere.map(({ pending }) => pending)),
        revertedCount:
          status.revertedCount + sum(followed.map(({ revertedCount }) => revertedCount)),
        takenCount: status.takenCount + sum(followed.map(({ takenCount }) => takenCount)),
      }
    },
    relayers: () => [...new Set([ownRelayer, ...backlogs.map(({ relayer }) => relayer)])],
  }
}
