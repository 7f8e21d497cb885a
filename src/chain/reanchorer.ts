import { setTimeout as sleep } from 'node:timers/promises'
import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { CommitRaceLost } from '../verified/commits-store.ts'
import type { ReanchorsStore, TakenAnchor } from './reanchors-store.ts'
import type { RelayerNonces } from './relayer-nonces.ts'

/** How often lost anchors are looked for. */
const REANCHOR_INTERVAL_MS = 5_000
/** Anchors that are made again at a time, so that commits of callers go in between. */
const REANCHORS_MAX = 32
/** While it lasts, a fault is logged again only this often. */
const FAULT_LOG_INTERVAL_MS = 60_000

/** Anchors again, under the current relayer, what can never be mined as it is. */
export type Reanchorer = {
  start(): void
  /** Resolves when nothing is left running. */
  stop(): Promise<void>
  /** Anchors made again, since the start. */
  count(): number
}

type ReanchorerOptions = {
  readonly reanchors: ReanchorsStore
  /** Of the relayer that pays from now on. */
  readonly nonces: Pick<RelayerNonces, 'use'>
  /** 0x, lower case. */
  readonly relayer: string
  readonly chainId: number
  /**
   * Signs the anchor of the same head, with the relayer's key: the raw transaction and its hash, 0x
   * hex.
   */
  readonly sign: (
    nonce: number,
    taken: Pick<TakenAnchor, 'contract' | 'head'>,
  ) => { readonly raw: string; readonly hash: string }
  /** Called after each one: there is a new anchor to broadcast. */
  readonly onReanchor: () => void
  readonly log: Logger
  /** Unix milliseconds. */
  readonly now: () => number
  readonly intervalMs?: number
}

/**
 * Gives a loop that anchors again every head whose transaction was lost. Each anchor whose nonce
 * was taken, of whatever relayer, gets a successor of the same head, which the contract never
 * refuses. Of several gateways, one makes it.
 */
export function createReanchorer(options: ReanchorerOptions): Reanchorer {
  return new ReanchorLoop(options)
}

class ReanchorLoop implements Reanchorer {
  readonly #options: ReanchorerOptions
  readonly #stopping = new AbortController()
  #loop: Promise<void> | null = null
  #count = 0
  #loggedAt = Number.NEGATIVE_INFINITY

  constructor(options: ReanchorerOptions) {
    this.#options = options
  }

  start(): void {
    this.#loop ??= this.#run()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#loop
  }

  count(): number {
    return this.#count
  }

  async #run(): Promise<void> {
    const { intervalMs = REANCHOR_INTERVAL_MS } = this.#options
    const { signal } = this.#stopping
    while (!signal.aborted) {
      const hasMore = await this.#replaceSome().catch((error: unknown) => this.#report(asError(error)))
      if (!hasMore) await sleep(intervalMs, null, { signal }).catch(() => undefined)
    }
  }

  /** Whether there may be more at once. */
  async #replaceSome(): Promise<boolean> {
    const { reanchors, chainId } = this.#options
    const found = await reanchors.listTaken(chainId, REANCHORS_MAX)
    for (const taken of found) {
      if (this.#stopping.signal.aborted) return false
      await this.#replace(taken)
    }
    return found.length === REANCHORS_MAX
  }

  async #replace(taken: TakenAnchor): Promise<void> {
    const { reanchors, nonces, relayer, sign, onReanchor, log, now } = this.#options
    const made = await nonces.use(async (nonce) => {
      const signed = sign(nonce, { contract: taken.contract, head: taken.head })
      await reanchors.replace(taken, { relayer, nonce, ...signed, createdAt: Math.floor(now() / 1000) })
      return { nonce, hash: signed.hash }
    })
    this.#count += 1
    log.warn(
      {
        ...{ relayer: taken.relayer, nonce: taken.nonce, size: taken.head.size },
        ...{ new_relayer: relayer, new_nonce: made.nonce, tx_hash: made.hash },
      },
      'head anchored again: the transaction of its first anchor can never be mined',
    )
    onReanchor()
  }

  #report(error: Error): boolean {
    // Another gateway was faster: what is left is looked up anew.
    if (error instanceof CommitRaceLost) return false
    const { log, now } = this.#options
    if (now() - this.#loggedAt >= FAULT_LOG_INTERVAL_MS) {
      this.#loggedAt = now()
      log.warn({ err: error }, 'lost anchors could not be made again; tried again')
    }
    return false
  }
}
