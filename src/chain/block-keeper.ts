import type { Logger } from '../observability/logger.ts'
import { backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { createLoop, pause } from '../runtime/loop.ts'
import type { AnchorBlocksStore, BlockPlace } from './anchor-blocks-store.ts'
import type { BlockProofs } from './block-proofs.ts'
import { BlockUnreadable } from './read-block.ts'

/** Times of a block keeper, milliseconds; each has a default, in KEEPER_DEFAULTS. */
type KeeperLimits = {
  /** Pause between two blocks. */
  readonly pauseMs: number
  /** Pause when every confirmed anchor has its proof. */
  readonly idleMs: number
  /**
   * After a failure: doubled from the first to the second, each time cut by a random part of up to
   * a half.
   */
  readonly backoffMinMs: number
  readonly backoffMaxMs: number
  /** Blocks that could not be read are tried again after this long. */
  readonly retryMs: number
  /**
   * While the gateway is busy it waits so long between looks, and for all of them at most so long.
   */
  readonly busyMs: number
  readonly busyMaxMs: number
}

const KEEPER_DEFAULTS: KeeperLimits = {
  // Five blocks a second: more than any public chain makes, and little against what the broadcaster
  // asks.
  pauseMs: 200,
  idleMs: 5_000,
  backoffMinMs: 500,
  backoffMaxMs: 60_000,
  retryMs: 600_000,
  busyMs: 500,
  busyMaxMs: 60_000,
}

/** Failures at one block, one after the other, before the next is tried. */
const FAILURES_PER_BLOCK_MAX = 3
/** While failures last, they are logged again only this often. */
const FAULT_LOG_INTERVAL_MS = 60_000

export type BlockKeeper = {
  start(): void
  /** Breaks off what waits, and resolves when nothing is left running. Nothing is lost by it. */
  stop(): Promise<void>
}

export type BlockKeeperOptions = {
  readonly blocks: Pick<AnchorBlocksStore, 'nextUnproven'>
  readonly proofs: Pick<BlockProofs, 'prove'>
  /** Anchors of logs for other chains are left alone. */
  readonly chainId: number
  /** Whether calls should come first just now. */
  readonly isBusy: () => boolean
  readonly log: Logger
  /** From 0 to 1; by default Math.random. */
  readonly random?: () => number
  /** Milliseconds, monotonic; by default performance.now. */
  readonly now?: () => number
} & Partial<KeeperLimits>

/**
 * Stores the block proofs of confirmed anchors, one block after the other, for as long as the
 * process lives. It holds nothing that a restart would lose and never throws out of its loop. A
 * block that cannot be read is passed over and tried again later. Several gateways on one database
 * do the same work twice, and no harm.
 */
export function createBlockKeeper(options: BlockKeeperOptions): BlockKeeper {
  const { blocks, proofs, chainId, isBusy, log } = options
  const { random = Math.random, now = () => performance.now() } = options
  const limits = { ...KEEPER_DEFAULTS, ...options }
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, now)
  /** The last block of this pass; the next is looked for after it. */
  let after: BlockPlace | null = null
  /** When a block of this pass was first left without its proofs. */
  let leftAt: number | null = null
  let failures = 0

  async function letCallsPass(signal: AbortSignal): Promise<void> {
    const { busyMs, busyMaxMs } = limits
    for (let waitedMs = 0; waitedMs < busyMaxMs && isBusy(); waitedMs += busyMs)
      await pause(busyMs, signal)
  }

  async function findNext(): Promise<BlockPlace | null> {
    const isRetryDue = leftAt === null || now() - leftAt >= limits.retryMs
    const next = await blocks.nextUnproven(chainId, after)
    if (next !== null || after === null || !isRetryDue) return next
    after = null
    leftAt = null
    return blocks.nextUnproven(chainId, null)
  }

  async function prove(place: BlockPlace): Promise<void> {
    const found = await proofs.prove(place.hash)
    after = place
    if (found !== null && found.size > 0) return
    // A reorganisation that the broadcaster has not seen yet, or an endpoint that is behind.
    leftAt ??= now()
    log.debug({ block: place.number, hash: place.hash }, 'block of confirmed anchors not found')
  }

  /** Gives how long to wait. */
  function recover(error: unknown, place: BlockPlace | null): number {
    failures += 1
    if (faults.isDue())
      log.warn(
        { err: error, block: place?.number ?? null },
        'block proofs could not be stored; tried again',
      )
    const isPassedOver = error instanceof BlockUnreadable || failures % FAILURES_PER_BLOCK_MAX === 0
    if (place !== null && isPassedOver) {
      after = place
      leftAt ??= now()
    }
    const bounds = { minMs: limits.backoffMinMs, maxMs: limits.backoffMaxMs }
    return backOffMs(failures, bounds, { jitter: 'half', random })
  }

  return createLoop(async (signal) => {
    let place: BlockPlace | null = null
    try {
      await letCallsPass(signal)
      place = await findNext()
      if (place !== null && !signal.aborted) await prove(place)
      failures = 0
      return place === null ? limits.idleMs : limits.pauseMs
    } catch (error) {
      return signal.aborted ? 0 : recover(error, place)
    }
  })
}
