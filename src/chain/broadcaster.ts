import { RpcError } from '../../client/rpc.ts'
import { type BackOffBounds, backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { createLoop, type LoopPause } from '../runtime/loop.ts'
import {
  BroadcastFault,
  BroadcastRounds,
  type RoundOptions,
  type RoundResult,
} from './broadcast-rounds.ts'

/** Times and limits of a broadcaster; each has a default, in BROADCASTER_DEFAULTS. */
type BroadcasterLimits = Pick<RoundOptions, 'windowMax' | 'rebroadcastMs' | 'takenAfterMs'> & {
  /**
   * Pause between rounds while an anchor is not yet confirmed. It is also the shortest pause
   * between any two rounds.
   */
  readonly pollIntervalMs: number
  /**
   * Pause between rounds while there is nothing to do. A reorganisation of settled anchors is found
   * at most this late.
   */
  readonly heartbeatMs: number
  /**
   * Pause between rounds while another gateway does the work. The figures here are at most this
   * old.
   */
  readonly standbyIntervalMs: number
  /** Pause after a failed round. Each time, a random part of up to a half is subtracted. */
  readonly backoff: BackOffBounds
}

const BROADCASTER_DEFAULTS: BroadcasterLimits = {
  // Half a second is short compared with any public chain's block time, and two rounds a second
  // cost little.
  pollIntervalMs: 500,
  heartbeatMs: 10_000,
  standbyIntervalMs: 2_000,
  backoff: { minMs: 250, maxMs: 15_000 },
  windowMax: 256,
  rebroadcastMs: 10_000,
  takenAfterMs: 60_000,
}

/** While a fault continues, it is logged only this often. */
const FAULT_LOG_INTERVAL_MS = 60_000

type BroadcasterFault = {
  readonly code: RpcError['code'] | BroadcastFault['code'] | 'rejected' | 'store_failed'
  readonly message: string
}

export type BroadcasterStatus = {
  readonly phase: 'stopped' | 'idle' | 'working' | 'failing'
  readonly fault: BroadcasterFault | null
  /**
   * Whether anchors do not reach the chain. False when the store fails, because the store is read
   * after the chain answered.
   */
  readonly isChainFailing: boolean
  /** Block number in the last round that reached the chain; null before it. */
  readonly blockNumber: number | null
  /** Stored anchors that no block contains yet, in that round. */
  readonly waitingCount: number
  /** Anchors that failed on the chain, since the start of this process. */
  readonly revertedCount: number
  readonly takenCount: number
}

export type Broadcaster = {
  start(): void
  /**
   * Call it when there are new anchors, or when the chain is reachable again. It is cheap and may
   * be called often.
   */
  notify(): void
  /** Aborts the running work and resolves when nothing runs. Nothing is lost. */
  stop(): Promise<void>
  status(): BroadcasterStatus
}

type BroadcasterOptions = Omit<
  RoundOptions,
  keyof BroadcasterLimits | 'isOurs' | 'onCount' | 'now'
> &
  /** By default isOurs gives true, onCount does nothing, and now is performance.now. */
  Partial<BroadcasterLimits & Pick<RoundOptions, 'isOurs' | 'onCount' | 'now'>> & {
    /** From 0 to 1; by default Math.random. */
    readonly random?: () => number
  }

/**
 * Brings stored anchors onto the chain in nonce order, while the process lives. Sends them as often
 * as necessary. A restart loses nothing, and an error never ends its loop: faults are in status()
 * and in the log.
 *
 * It relies on this rule: only this store uses the relayer's nonces. If another program used an
 * anchor's nonce, the anchor is marked as taken. It does not sign, replace a transaction or raise
 * its fees, because callers already have the hash.
 */
export function createBroadcaster(given: BroadcasterOptions): Broadcaster {
  const options = {
    ...BROADCASTER_DEFAULTS,
    now: () => performance.now(),
    random: Math.random,
    onCount: () => undefined,
    isOurs: () => true,
    ...given,
  }
  const { relayer, log, now } = options
  const rounds = new BroadcastRounds(options)
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, now)
  let last: RoundResult | null = null
  let fault: BroadcasterFault | null = null
  let failures = 0

  /**
   * Keeps the fault for status(). Logs when the fault begins, when it ends, and now and then while
   * it continues.
   */
  function setFault(found: BroadcasterFault | null): void {
    if (found !== null) {
      if (faults.isDue(found.code))
        log.warn(
          { relayer, fault: found },
          isOfStore(found) ? STORE_WORDS.begins : CHAIN_WORDS.begins,
        )
    } else {
      if (fault !== null)
        log.info({ relayer }, isOfStore(fault) ? STORE_WORDS.ends : CHAIN_WORDS.ends)
      faults.clear()
    }
    fault = found
  }

  /**
   * A failing chain is not called during the whole pause. An idle broadcaster can be woken, but not
   * more often than it polls.
   */
  function pauseAfter(startedAt: number): LoopPause {
    const { pollIntervalMs, heartbeatMs, standbyIntervalMs, backoff, random } = options
    if (failures > 0) {
      const ms = backOffMs(failures, backoff, { jitter: 'half', random })
      return { ms, leastMs: ms }
    }
    if (last?.isStandby === true) return { ms: standbyIntervalMs, leastMs: standbyIntervalMs }
    if (last?.isSettled !== true) return { ms: pollIntervalMs, leastMs: pollIntervalMs }
    const leastMs = Math.max(0, pollIntervalMs - (now() - startedAt))
    return { ms: leastMs + heartbeatMs - pollIntervalMs, leastMs }
  }

  const loop = createLoop(async (signal) => {
    const startedAt = now()
    try {
      last = await rounds.run(signal)
      failures = 0
      setFault(last.rejection === null ? null : { code: 'rejected', message: last.rejection })
    } catch (error) {
      if (signal.aborted) return 0
      failures += 1
      setFault(describeFault(error))
    }
    return pauseAfter(startedAt)
  })

  return {
    start: loop.start,
    notify: loop.wake,
    stop: loop.stop,
    status: () => ({
      phase: phaseOf({ isRunning: loop.isRunning(), fault, last }),
      fault,
      isChainFailing: !loop.isRunning() || (fault !== null && !isOfStore(fault)),
      blockNumber: last?.view.blockNumber ?? null,
      waitingCount: waitingCount(last),
      revertedCount: rounds.revertedCount,
      takenCount: rounds.takenCount,
    }),
  }
}

const CHAIN_WORDS = {
  begins: 'anchors do not reach the chain; they are tried again',
  ends: 'anchors reach the chain again',
}
const STORE_WORDS = {
  begins: 'anchors cannot be read or marked in the database; it is tried again',
  ends: 'anchors can be read and marked in the database again',
}

function isOfStore({ code }: BroadcasterFault): boolean {
  return code === 'store_failed'
}

function phaseOf(state: {
  readonly isRunning: boolean
  readonly fault: BroadcasterFault | null
  readonly last: RoundResult | null
}): BroadcasterStatus['phase'] {
  if (!state.isRunning) return 'stopped'
  if (state.fault !== null) return 'failing'
  return state.last?.isSettled === true ? 'idle' : 'working'
}

function waitingCount(last: RoundResult | null): number {
  if (last === null || last.highestNonce === null) return 0
  return Math.max(0, last.highestNonce + 1 - last.view.nonce)
}

function describeFault(error: unknown): BroadcasterFault {
  if (error instanceof RpcError || error instanceof BroadcastFault) {
    return { code: error.code, message: error.message }
  }
  return { code: 'store_failed', message: error instanceof Error ? error.message : String(error) }
}
