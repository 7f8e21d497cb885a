import type { Logger } from '../logger.ts'
import type { AnchorsStore } from './anchors-port.ts'
import { BroadcastRounds, ChainFault, type RoundResult } from './broadcast-rounds.ts'
import { type Rpc, RpcError } from './rpc.ts'

/** Times and limits of a broadcaster; each has a default, in BROADCASTER_DEFAULTS. */
export type BroadcasterLimits = {
  /** Pause between rounds while an anchor is not yet confirmed, and least pause between any two. */
  readonly pollIntervalMs: number
  /** Pause between rounds while there is nothing to do: how late a reorganisation of settled anchors is noticed. */
  readonly heartbeatMs: number
  /** After a failed round: doubled from the first to the second, each time cut by a random part of up to a half. */
  readonly backoffMinMs: number
  readonly backoffMaxMs: number
  /** RoundOptions has these three. */
  readonly windowMax: number
  readonly rebroadcastMs: number
  readonly takenAfterMs: number
}

export const BROADCASTER_DEFAULTS: BroadcasterLimits = {
  // Half a second is little against any public chain's block time, and two rounds a second cost next to nothing.
  pollIntervalMs: 500,
  heartbeatMs: 10_000,
  backoffMinMs: 250,
  backoffMaxMs: 15_000,
  windowMax: 256,
  rebroadcastMs: 10_000,
  takenAfterMs: 60_000,
}

/** While it lasts, a fault is logged again only this often. */
export const FAULT_LOG_INTERVAL_MS = 60_000

export type BroadcasterFault = {
  readonly code: RpcError['code'] | ChainFault['code'] | 'rejected' | 'store_failed'
  readonly message: string
}

export type BroadcasterStatus = {
  readonly phase: 'stopped' | 'idle' | 'working' | 'failing'
  readonly fault: BroadcasterFault | null
  /** As of the last round that reached the chain; null before it. */
  readonly blockNumber: number | null
  /** Stored anchors that are in no block yet, as of that round. */
  readonly waitingCount: number
  /** Since the start of this process. */
  readonly revertedCount: number
  readonly takenCount: number
}

export type Broadcaster = {
  start(): void
  /** Says that there are new anchors, or that the chain is back. Cheap; call it as often as you like. */
  notify(): void
  /** Breaks off what runs and resolves when nothing is left running. Nothing is lost by it. */
  stop(): Promise<void>
  status(): BroadcasterStatus
}

/**
 * Brings stored anchors onto the chain, in nonce order, as often as it takes, for as long as the process lives. It holds
 * nothing that a restart would lose, and never throws out of its loop: what is wrong is in status() and in the log.
 *
 * What it relies on: that the relayer's nonces are used by this store alone, and that the store has no gaps in them.
 * What it does not do: replace a transaction or raise its fees (a hash that was given out stays).
 */
export function createBroadcaster(
  options: {
    readonly rpc: Rpc
    readonly anchors: AnchorsStore
    /** 0x, lower case. */
    readonly relayer: string
    readonly chainId: number
    readonly contract: string
    readonly confirmations: number
    readonly log: Logger
    /** Milliseconds, monotonic; by default performance.now. */
    readonly now?: () => number
    /** From 0 to 1; by default Math.random. */
    readonly random?: () => number
  } & Partial<BroadcasterLimits>,
): Broadcaster {
  const { log } = options
  const settings = { ...BROADCASTER_DEFAULTS, now: () => performance.now(), random: Math.random, ...options }
  const rounds = new BroadcastRounds(settings)
  const stopping = new AbortController()
  let loop: Promise<void> | null = null
  let last: RoundResult | null = null
  let fault: BroadcasterFault | null = null
  let failures = 0
  let isNotified = false
  let wake: () => void = () => undefined
  let loggedFault = { code: '', at: Number.NEGATIVE_INFINITY }

  async function work(): Promise<void> {
    while (!stopping.signal.aborted) {
      const startedAt = settings.now()
      isNotified = false
      try {
        last = await rounds.run(stopping.signal)
        failures = 0
        setFault(last.rejection === null ? null : { code: 'rejected', message: last.rejection })
      } catch (error) {
        if (stopping.signal.aborted) return
        failures += 1
        setFault(describeFault(error))
      }
      await pause(startedAt)
    }
  }

  /** A failing chain is left alone for the whole pause; an idle broadcaster can be woken, but not more often than polled. */
  async function pause(startedAt: number): Promise<void> {
    if (failures > 0) return await sleep(backoffMs(), false)
    await sleep(settings.pollIntervalMs - (settings.now() - startedAt), false)
    const isSettled = last?.isSettled ?? true
    if (isSettled && !isNotified) await sleep(settings.heartbeatMs - settings.pollIntervalMs, true)
  }

  function backoffMs(): number {
    const fullMs = Math.min(settings.backoffMinMs * 2 ** (failures - 1), settings.backoffMaxMs)
    return fullMs * (1 - settings.random() / 2)
  }

  function sleep(ms: number, isWakeable: boolean): Promise<void> {
    if (stopping.signal.aborted || ms <= 0) return Promise.resolve()
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer)
        stopping.signal.removeEventListener('abort', done)
        wake = () => undefined
        resolve()
      }
      const timer = setTimeout(done, ms)
      stopping.signal.addEventListener('abort', done)
      if (isWakeable) wake = done
    })
  }

  function setFault(next: BroadcasterFault | null): void {
    const previous = fault
    fault = next
    if (next === null) {
      if (previous !== null) log.info({ relayer: options.relayer }, 'anchors reach the chain again')
      loggedFault = { code: '', at: Number.NEGATIVE_INFINITY }
      return
    }
    const at = settings.now()
    if (next.code === loggedFault.code && at - loggedFault.at < FAULT_LOG_INTERVAL_MS) return
    loggedFault = { code: next.code, at }
    log.warn(
      { relayer: options.relayer, fault: next },
      'anchors do not reach the chain; they are tried again',
    )
  }

  return {
    start: () => {
      loop ??= work()
    },
    notify: () => {
      isNotified = true
      wake()
    },
    stop: async () => {
      stopping.abort()
      await loop
    },
    status: () => ({
      phase: phaseOf({ isRunning: loop !== null && !stopping.signal.aborted, fault, last }),
      fault,
      blockNumber: last?.view.blockNumber ?? null,
      waitingCount: waitingCount(last),
      revertedCount: rounds.revertedCount,
      takenCount: rounds.takenCount,
    }),
  }
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
  if (error instanceof RpcError || error instanceof ChainFault) {
    return { code: error.code, message: error.message }
  }
  return { code: 'store_failed', message: error instanceof Error ? error.message : String(error) }
}
