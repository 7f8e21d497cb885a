import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import { CommitRaceLost, type NonceStore } from './relayers-store.ts'

/** How long a running service waits for the chain. A starting service waits without a limit. */
const DOUBT_TIMEOUT_MS = 2_000

/**
 * Maximum number of nonces that are skipped at once: ten days with an anchor each second. A wider
 * gap means that the endpoint lies or serves another chain. After a nonce that is wrongly skipped,
 * the chain would mine no anchor.
 */
export const NONCES_SKIPPED_MAX = 1_000_000

/** A commit fails if other gateways took its nonce this many times in a row. */
const RACES_IN_ROW_MAX = 10

export type NoncedRelayer = {
  /** 0x, lower case. */
  readonly address: string
  /** Counts transactions in blocks and waiting transactions. Throws if the chain is unreachable. */
  readonly countTransactions: (signal?: AbortSignal) => Promise<number>
}

/**
 * The next nonce is unknown: the chain is unreachable, and the database may lack commits, after a
 * restore or a switch to a late replica. An anchor with a guessed nonce might never be mined.
 */
export class NonceUnknown extends Error {
  override readonly name = 'NonceUnknown'
}

type NoncesOptions = {
  readonly commits: NonceStore
  readonly relayer: NoncedRelayer
  readonly log?: Pick<Logger, 'error'>
}

/**
 * The nonces of one relayer, for all committers in this process. Commits run one after another, so
 * they never share a nonce. The database counts nonces, but may have lost commits. So its count is
 * compared with the chain's count before the first nonce, when the chain reports its count
 * (`recordCount`), and after failures (`doubt`). The higher count is used.
 */
export class RelayerNonces {
  /** Called when a commit is repeated because another gateway took its nonce. */
  onRace: () => void = () => undefined
  readonly #options: NoncesOptions
  readonly #queue = createSerialQueue()
  #next: number | null = null
  /** The relayer's number of transactions on the chain. All lower nonces are used. */
  #shown = 0
  /** The last known next nonce in the database. If it becomes lower, commits were lost. */
  #known = 0
  /**
   * `must`: no nonce is assigned before the chain answers. `should`: the chain is asked, but may be
   * unreachable.
   */
  #comparison: 'must' | 'should' | 'done' = 'must'

  constructor(options: NoncesOptions) {
    this.#options = options
  }

  get relayer(): string {
    return this.#options.relayer.address
  }

  /** Throws NonceUnknown and the database's errors. */
  refresh(): Promise<void> {
    return this.#queue.run(async () => {
      this.#next = null
      this.#next = await this.#read()
    })
  }

  /**
   * Runs a commit with the next nonce. If another gateway took the nonce, `run` is called again
   * with the next one. Throws the errors of `run`, and CommitRaceLost after too many repetitions.
   */
  use<Result>(run: (nonce: number) => Promise<Result>): Promise<Result> {
    return this.#queue.run(async () => {
      let nonce = this.#next ?? (await this.#read())
      for (let races = 0; ; races++) {
        this.#next = null
        try {
          const result = await run(nonce)
          this.#known = Math.max(this.#known, nonce + 1)
          // The chain may have reported more transactions during the commit.
          this.#next = this.#shown > this.#known ? null : this.#known
          return result
        } catch (error) {
          if (!(error instanceof CommitRaceLost) || races >= RACES_IN_ROW_MAX) throw error
          const { commits, relayer } = this.#options
          const stored = (await commits.nextNonce(relayer.address)) ?? 0
          // No other gateway took the nonce, or the database has lost commits.
          if (stored <= nonce || stored < this.#shown) throw error
          this.onRace()
          nonce = stored
        }
      }
    })
  }

  /** Call this when another gateway committed. `nextNonce` comes from the database. */
  recordTaken({
    relayer,
    nextNonce,
  }: {
    readonly relayer: string
    readonly nextNonce: number
  }): void {
    if (relayer !== this.relayer) return
    this.#known = Math.max(this.#known, nextNonce)
    if (this.#next !== null && this.#next < nextNonce) this.#next = nextNonce
  }

  /** Call this with the number of the relayer's transactions on the chain. */
  readonly recordCount = (count: number): void => {
    this.#shown = Math.max(this.#shown, count)
    if (this.#next !== null && this.#next < count) this.#next = null
  }

  /** Call this when the database may have changed. The next `refresh` then asks the chain. */
  doubt(): void {
    if (this.#comparison === 'done') this.#comparison = 'should'
  }

  async #read(): Promise<number> {
    const { commits, relayer, log } = this.#options
    const isCompared = this.#comparison !== 'done' && (await this.#compare())
    const stored = await commits.nextNonce(relayer.address)
    if (stored !== null && stored >= Math.max(this.#shown, this.#known)) {
      this.#known = stored
      return stored
    }
    // A lower nonce means lost commits. Only the chain shows how many.
    if (!isCompared) {
      this.#comparison = 'must'
      await this.#compare()
    }
    if (stored !== null && this.#shown > stored + NONCES_SKIPPED_MAX) {
      const shown = this.#shown
      this.#shown = 0
      this.#comparison = 'must'
      throw new NonceUnknown(
        `expected the chain to have at most ${NONCES_SKIPPED_MAX} transactions of relayer ` +
          `${relayer.address} more than the database, which has ${stored}; it says ${shown}`,
      )
    }
    // If the transaction of a lost commit was not sent, its nonce must be used again: the chain
    // mines no transaction after a gap. If the transaction was sent, a new one gets the same
    // nonce. Only one of the two is mined, and the head of the other is anchored again.
    const next = await commits.raiseNonce(relayer.address, this.#shown)
    this.#known = next
    if (stored !== null)
      log?.error(
        { relayer: relayer.address, stored, next },
        next > stored
          ? 'the database is behind the chain: it lost commits, and their nonces are skipped'
          : 'the database lost commits that the chain does not have: their nonces are used again',
      )
    return next
  }

  /**
   * Returns true if the chain answered. The chain must be read before the database, so that the
   * database has every commit that the chain shows. Throws NonceUnknown if the chain must be asked
   * and is unreachable.
   */
  async #compare(): Promise<boolean> {
    const { address, countTransactions } = this.#options.relayer
    const isMust = this.#comparison === 'must'
    try {
      const count = await countTransactions(
        isMust ? undefined : AbortSignal.timeout(DOUBT_TIMEOUT_MS),
      )
      this.#shown = Math.max(this.#shown, count)
      this.#comparison = 'done'
      return true
    } catch (cause) {
      if (!isMust) {
        // Anchors can be signed without the chain's answer here. They are sent later.
        this.#comparison = 'done'
        return false
      }
      throw new NonceUnknown(
        `expected the chain to say how many transactions relayer ${address} has, before the ` +
          `first anchor is signed: ${asError(cause).message}`,
        { cause },
      )
    }
  }
}
