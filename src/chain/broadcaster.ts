import { RpcError } from '#client/rpc.ts'
import { type BackOffBounds, backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { createLoop, type LoopPause } from '../runtime/loop.ts'
import {
  BroadcastFault,
  BroadcastRounds,
  type RoundOptions,
  type RoundResult,
} from './send-anchors.ts'

type BroadcasterLimits = Pick<RoundOptions, 'windowMax' | 'rebroadcastMs' | 'takenAfterMs'> & {
  /** The pause while an anchor is unconfirmed. Shorter than the time between two blocks. */
  readonly pollIntervalMs: number
  /**
   * The pause without work. A reorganisation of confirmed anchors is found after this time at most.
   */
  readonly heartbeatMs: number
  /** The pause while another gateway does the work. The status figures are at most this old. */
  readonly standbyIntervalMs: number
  /** Pause after a failed round. A random part of up to a half is subtracted. */
  readonly backoff: BackOffBounds
}

const BROADCASTER_DEFAULTS: BroadcasterLimits = {
  pollIntervalMs: 500,
  heartbeatMs: 10_000,
  standbyIntervalMs: 2_000,
  backoff: { minMs: 250, maxMs: 15_000 },
  windowMax: 256,
  rebroadcastMs: 10_000,
  takenAfterMs: 60_000,
}

const FAULT_LOG_INTERVAL_MS = 60_000

type BroadcasterFault = {
  readonly code: RpcError['code'] | BroadcastFault['code'] | 'rejected' | 'store_failed'
  readonly message: string
}

export type BroadcasterStatus = {
  readonly phase: 'stopped' | 'idle' | 'working' | 'failing'
  readonly fault: BroadcasterFault | null
  /** True if anchors do not reach the chain. False if only the store fails. */
  readonly isChainFailing: boolean
  /** The newest block when a round last reached the chain. Null before the first such round. */
  readonly blockNumber: number | null
  readonly pendingCount: number
  /** This count and takenCount begin at the start of this process. */
  readonly revertedCount: number
  readonly takenCount: number
}

export type Broadcaster = {
  start(): void
  /** Starts the next round soon. Frequent calls cost little. */
  notify(): void
  /**
   * Aborts the running work. No anchor is lost, because the store has all of them. Resolves when
   * nothing runs.
   */
  stop(): Promise<void>
  status(): BroadcasterStatus
}

type BroadcasterOptions = Omit<
  RoundOptions,
  keyof BroadcasterLimits | 'isOurs' | 'onCount' | 'now'
> &
  Partial<BroadcasterLimits & Pick<RoundOptions, 'isOurs' | 'onCount' | 'now'>> & {
    /** A number from 0 to 1. Default: Math.random. */
    readonly random?: () => number
  }

/**
 * Sends stored anchors to the chain in nonce order, until blocks confirm them. A restart loses
 * nothing. Faults appear in status() and in the log, and never end the loop. Only this store may
 * use the relayer's nonces: an anchor whose nonce another program used is marked as taken. A
 * transaction is never signed again or repriced, because callers already have its hash.
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
   * Returns the pause. notify() ends only a pause without work, and only once in each
   * `pollIntervalMs`.
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
      pendingCount: pendingCount(last),
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

function pendingCount(last: RoundResult | null): number {
  if (last === null || last.highestNonce === null) return 0
  return Math.max(0, last.highestNonce + 1 - last.view.nonce)
}

function describeFault(error: unknown): BroadcasterFault {
  if (error instanceof RpcError || error instanceof BroadcastFault) {
    return { code: error.code, message: error.message }
  }
  return { code: 'store_failed', message: error instanceof Error ? error.message : String(error) }
}
