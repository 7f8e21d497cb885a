import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from '../observability/logger.ts'
import type { AnchorBlocksStore, BlockPlace } from './anchor-blocks-store.ts'
import type { BlockProofs } from './block-proofs.ts'
import { BlockUnreadable } from './read-block.ts'

/** Times of a block keeper, milliseconds; each has a default, in KEEPER_DEFAULTS. */
export type KeeperLimits = {
  /** Pause between two blocks. */
  readonly pauseMs: number
  /** Pause when every confirmed anchor has its proof. */
  readonly idleMs: number
  /** After a failure: doubled from the first to the second, each time cut by a random part of up to a half. */
  readonly backoffMinMs: number
  readonly backoffMaxMs: number
  /** Blocks that could not be read are tried again after this long. */
  readonly retryMs: number
  /** While the gateway is busy it waits so long between looks, and for all of them at most so long. */
  readonly busyMs: number
  readonly busyMaxMs: number
}

export const KEEPER_DEFAULTS: KeeperLimits = {
  // Five blocks a second: more than any public chain makes, and little against what the broadcaster asks.
  pauseMs: 200,
  idleMs: 5_000,
  backoffMinMs: 500,
  backoffMaxMs: 60_000,
  retryMs: 600_000,
  busyMs: 500,
  busyMaxMs: 60_000,
}

/** Failures at one block, one after the other, before the next is tried. */
export const FAILURES_PER_BLOCK_MAX = 3
/** While failures last, they are logged again only this often. */
export const FAULT_LOG_INTERVAL_MS = 60_000

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
 * Stores the block proofs of confirmed anchors, one block after the other, for as long as the process lives. It holds
 * nothing that a restart would lose and never throws out of its loop. A block that cannot be read is passed over and
 * tried again later. Several gateways on one database do the same work twice, and no harm.
 */
export function createBlockKeeper(options: BlockKeeperOptions): BlockKeeper {
  const stopping = new AbortController()
  let loop: Promise<void> | null = null
  return {
    start() {
      loop ??= new KeeperLoop(options, stopping.signal).run()
    },
    async stop() {
      stopping.abort()
      await loop
    },
  }
}

class KeeperLoop {
  readonly #options: Required<BlockKeeperOptions>
  readonly #stop: AbortSignal
  /** The last block of this pass; the next is looked for after it. */
  #after: BlockPlace | null = null
  /** When a block of this pass was first left without its proofs. */
  #leftAt: number | null = null
  #failures = 0
  #loggedAt = Number.NEGATIVE_INFINITY

  constructor(options: BlockKeeperOptions, stop: AbortSignal) {
    this.#options = {
      ...KEEPER_DEFAULTS,
      random: Math.random,
      now: () => performance.now(),
      ...options,
    }
    this.#stop = stop
  }

  async run(): Promise<void> {
    const { idleMs, pauseMs } = this.#options
    while (!this.#stop.aborted) {
      let place: BlockPlace | null = null
      try {
        await this.#letCallsPass()
        place = await this.#findNext()
        if (place !== null && !this.#stop.aborted) await this.#prove(place)
        this.#failures = 0
        await this.#pause(place === null ? idleMs : pauseMs)
      } catch (error) {
        if (this.#stop.aborted) return
        await this.#recover(error, place)
      }
    }
  }

  async #findNext(): Promise<BlockPlace | null> {
    const { blocks, chainId, retryMs, now } = this.#options
    const isRetryDue = this.#leftAt === null || now() - this.#leftAt >= retryMs
    const next = await blocks.nextUnproven(chainId, this.#after)
    if (next !== null || this.#after === null || !isRetryDue) return next
    this.#after = null
    this.#leftAt = null
    return blocks.nextUnproven(chainId, null)
  }

  async #prove(place: BlockPlace): Promise<void> {
    const { proofs, log } = this.#options
    const found = await proofs.prove(place.hash)
    this.#after = place
    if (found !== null && found.size > 0) return
    // A reorganisation that the broadcaster has not seen yet, or an endpoint that is behind.
    this.#leave()
    log.debug({ block: place.number, hash: place.hash }, 'block of confirmed anchors not found')
  }

  #leave(): void {
    this.#leftAt ??= this.#options.now()
  }

  async #recover(error: unknown, place: BlockPlace | null): Promise<void> {
    const { log, now, backoffMinMs, backoffMaxMs, random } = this.#options
    this.#failures += 1
    if (now() - this.#loggedAt >= FAULT_LOG_INTERVAL_MS) {
      this.#loggedAt = now()
      log.warn({ err: error, block: place?.number ?? null }, 'block proofs could not be stored; tried again')
    }
    if (
      place !== null &&
      (error instanceof BlockUnreadable || this.#failures % FAILURES_PER_BLOCK_MAX === 0)
    ) {
      this.#after = place
      this.#leave()
    }
    const fullMs = Math.min(backoffMinMs * 2 ** (this.#failures - 1), backoffMaxMs)
    await this.#pause(fullMs * (1 - random() / 2))
  }

  async #letCallsPass(): Promise<void> {
    const { isBusy, busyMs, busyMaxMs } = this.#options
    for (let waitedMs = 0; waitedMs < busyMaxMs && isBusy(); waitedMs += busyMs) await this.#pause(busyMs)
  }

  async #pause(ms: number): Promise<void> {
    await sleep(ms, undefined, { signal: this.#stop, ref: false }).catch(() => undefined)
  }
}
