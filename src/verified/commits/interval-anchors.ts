import { asError } from '../../api/errors.ts'
import type { Anchoring } from '../../chain/anchoring.ts'
import type { RelayerNonces } from '../../chain/relayer-nonces.ts'
import { CommitRaceLost } from '../../chain/relayers-store.ts'
import type { Logger } from '../../observability/logger.ts'
import { type BackOffBounds, backOffMs } from '../../runtime/back-off.ts'
import { createFaultLog } from '../../runtime/fault-log.ts'
import { createLoop, pause } from '../../runtime/loop.ts'
import type { CommitTurns } from './commit-turns.ts'
import type { UnanchoredHead, UnanchoredStore } from './unanchored-store.ts'

const BACKOFF: BackOffBounds = { minMs: 50, maxMs: 1_000 }
const FAULT_LOG_INTERVAL_MS = 30_000
/**
 * How often this gateway looks for late heads of other gateways, and the delay from which a head
 * counts as late.
 */
const LOOK_INTERVAL_MS = 2_000
const LATE_SECONDS = 3

export type CommittedLog = { readonly notary: string; readonly size: number }

/** One anchor for all commits of a log within an interval. */
export type IntervalAnchors = {
  /** 0 if each commit has its own anchor. */
  readonly intervalMs: number
  /** The leaves get their anchor at the end of the interval. */
  schedule(log: CommittedLog): void
  /** Makes the anchor of a log now. Also resolves if no anchor could be made. */
  flush(notary: string): Promise<void>
  /**
   * Resolves when all leaves that are now committed to the log are anchored. Resolves at once for a
   * log of another chain, because its leaves get no anchor here.
   */
  settle(notary: string, signal: AbortSignal): Promise<void>
  /** Why anchors cannot be made, and since when (performance.now()). Null when they can be made. */
  fault(): { readonly error: Error; readonly sinceMs: number } | null
  start(): void
  /** Leaves the remaining commits without an anchor, for another gateway or the next start. */
  stop(): Promise<void>
}

type IntervalAnchorsOptions = {
  readonly store: UnanchoredStore
  readonly nonces: Pick<RelayerNonces, 'relayer' | 'use'>
  readonly chainId: number
  /** The anchor must go to the contract for which the head was signed. */
  readonly sign: (
    ...given: Required<Parameters<Anchoring['sign']>>
  ) => ReturnType<Anchoring['sign']>
  readonly turns: Pick<CommitTurns, 'encodeNotice'>
  readonly intervalMs: number
  /** Called when scheduled leaves are anchored, and after each anchor of this gateway. */
  readonly onAnchored: (log: CommittedLog) => void
  readonly log: Logger
  /** Unix milliseconds. */
  readonly now: () => number
  readonly lookIntervalMs?: number
  readonly lateSeconds?: number
}

/**
 * Anchors the heads of commits that were stored without an anchor. The database has these heads
 * with their notary's signature, so any gateway can anchor them without the enclave. Each gateway
 * also anchors late heads of other gateways.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: methods that share one state
export function createIntervalAnchors(options: IntervalAnchorsOptions): IntervalAnchors {
  const { store, nonces, chainId, sign, turns, intervalMs, onAnchored, log, now } = options
  const { lookIntervalMs = LOOK_INTERVAL_MS, lateSeconds = LATE_SECONDS } = options
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, () => performance.now())
  /** Logs whose interval has not ended, with their committed leaves. */
  const waiting = new Map<string, { size: number; readonly timer: NodeJS.Timeout }>()
  const running = new Set<Promise<void>>()
  let fault: { readonly error: Error; readonly sinceMs: number } | null = null
  let failures = 0

  async function anchorHead(head: UnanchoredHead): Promise<void> {
    const { notary, size } = head
    const { relayer } = nonces
    await nonces.use(async (nonce) => {
      const signed = sign(nonce, head, head.domain.contract)
      const notice = turns.encodeNotice({ notary, size, relayer, nextNonce: nonce + 1 })
      const createdAt = Math.floor(now() / 1000)
      await store.anchor(head, { relayer, nonce, ...signed, createdAt, notice })
    })
    onAnchored({ notary, size })
  }

  /** Throws the errors of the database and of the nonces. */
  async function anchorLog(notary: string): Promise<void> {
    for (;;) {
      const head = await store.find(chainId, notary)
      if (head === null) return
      try {
        return await anchorHead(head)
      } catch (error) {
        if (!(error instanceof CommitRaceLost)) throw error
        log.debug({ notary, err: error }, 'the log grew, or another gateway anchored it first')
      }
    }
  }

  async function endInterval(notary: string, size: number): Promise<void> {
    try {
      await anchorLog(notary)
      // If another gateway anchored the log first, anchorHead did not make this call.
      onAnchored({ notary, size })
      succeed()
    } catch (thrown) {
      fail(asError(thrown))
      wait({ notary, size }, backOffMs(failures, BACKOFF, { jitter: 'none' }))
    }
  }

  function succeed(): void {
    fault = null
    failures = 0
    faults.clear()
  }

  function fail(error: Error): void {
    failures += 1
    fault = { error, sinceMs: fault?.sinceMs ?? performance.now() }
    if (faults.isDue(`${error.name}: ${error.message}`))
      log.error({ err: error }, 'anchor of an interval not made, trying again')
  }

  function wait({ notary, size }: CommittedLog, delayMs: number): void {
    const known = waiting.get(notary)
    if (known !== undefined) {
      known.size = Math.max(known.size, size)
      return
    }
    const timer = setTimeout(() => void run(notary), delayMs)
    waiting.set(notary, { size, timer })
  }

  async function run(notary: string): Promise<void> {
    const scheduled = waiting.get(notary)
    if (scheduled === undefined) return
    clearTimeout(scheduled.timer)
    waiting.delete(notary)
    const ended = endInterval(notary, scheduled.size)
    running.add(ended)
    await ended.finally(() => running.delete(ended))
  }

  const looks = createLoop(async () => {
    try {
      const late = await store.listOlder(chainId, Math.ceil(intervalMs / 1000) + lateSeconds)
      for (const { notary, size } of late) {
        log.warn({ notary, size }, 'anchoring what its gateway committed and did not anchor')
        await anchorLog(notary)
      }
    } catch (error) {
      // The committer reports an unreachable database, so this log entry has the level debug.
      log.debug({ err: asError(error) }, 'heads without an anchor could not be looked for')
    }
    return lookIntervalMs
  })

  return {
    intervalMs,
    schedule: (committed) => wait(committed, intervalMs),
    flush: run,
    async settle(notary, signal) {
      for (;;) {
        const head = await store.find(chainId, notary)
        if (head === null) return
        signal.throwIfAborted()
        wait(head, 0)
        await run(notary)
        if (fault !== null) await pause(BACKOFF.minMs, signal)
      }
    },
    fault: () => fault,
    start: looks.start,
    async stop() {
      await looks.stop()
      for (const { timer } of waiting.values()) clearTimeout(timer)
      waiting.clear()
      await Promise.all(running)
    },
  }
}
