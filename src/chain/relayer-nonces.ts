import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import { CommitRaceLost, type NonceStore } from './relayers-store.ts'

/**
 * How long a running service waits for the chain when the database may be wrong. At the start it
 * waits without a limit.
 */
const DOUBT_TIMEOUT_MS = 2_000

/**
 * The most nonces that are skipped at once: ten days with an anchor each second. An endpoint that
 * counts more is lying or serves another chain. A transaction that is signed after such a gap is
 * never mined.
 */
export const NONCES_SKIPPED_MAX = 1_000_000

/** How many times in a row other gateways may take a commit's nonce before the commit fails. */
const RACES_IN_ROW_MAX = 10

/** The relayer whose nonces are given out. */
export type NoncedRelayer = {
  /** 0x, lower case. */
  readonly address: string
  /**
   * How many transactions of the relayer the chain has, including the ones that wait for a block.
   * Throws when the chain is unreachable.
   */
  readonly countTransactions: (signal?: AbortSignal) => Promise<number>
}

/**
 * The next nonce cannot be known: the database may have been restored to an earlier state, or
 * failed over to a replica that was behind. Only the chain knows the nonce then, and the chain is
 * unreachable. An anchor signed with a guessed nonce may never be mined.
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
 * The nonces of one relayer, for all committers of this process. Committers commit one after
 * another, so none takes another's nonce. If another gateway on the database takes a nonce,
 * CommitRaceLost shows it.
 *
 * The database counts the nonces. When the database has lost commits, only the chain has the right
 * count. So the two counts are compared before the first nonce is given out, whenever the chain
 * shows its count (`recordCount`), and after failures (`doubt`). The higher count is used.
 */
export class RelayerNonces {
  /** Called when a commit is made again because another gateway took its nonce. */
  onRace: () => void = () => undefined
  readonly #options: NoncesOptions
  readonly #queue = createSerialQueue()
  #next: number | null = null
  /** The chain has shown this many transactions. No nonce below it is free. */
  #shown = 0
  /**
   * The last known next nonce of the database. If the database has a lower nonce now, it has lost
   * commits.
   */
  #known = 0
  /**
   * `must`: the chain must be asked before a nonce is given out. `should`: it is asked if it can be
   * reached.
   */
  #comparison: 'must' | 'should' | 'done' = 'must'

  constructor(options: NoncesOptions) {
    this.#options = options
  }

  /** Address of the relayer, 0x, lower case. */
  get relayer(): string {
    return this.#options.relayer.address
  }

  /** Reads the next nonce again. Throws NonceUnknown and the database's errors. */
  refresh(): Promise<void> {
    return this.#queue.run(async () => {
      this.#next = null
      this.#next = await this.#read()
    })
  }

  /**
   * Runs a commit with the next nonce. When `run` resolves, the nonce is taken. After a failure,
   * the nonce is read again: if another gateway took it, `run` is called again.
   */
  use<Result>(run: (nonce: number) => Promise<Result>): Promise<Result> {
    return this.#queue.run(async () => {
      let nonce = this.#next ?? (await this.#read())
      for (let races = 0; ; races++) {
        this.#next = null
        try {
          const result = await run(nonce)
          this.#known = Math.max(this.#known, nonce + 1)
          // The chain may have shown more transactions meanwhile.
          this.#next = this.#shown > this.#known ? null : this.#known
          return result
        } catch (error) {
          if (!(error instanceof CommitRaceLost) || races >= RACES_IN_ROW_MAX) throw error
          const { commits, relayer } = this.#options
          const stored = (await commits.nextNonce(relayer.address)) ?? 0
          // The race was lost for another reason, or the database has lost commits.
          if (stored <= nonce || stored < this.#shown) throw error
          this.onRace()
          nonce = stored
        }
      }
    })
  }

  /**
   * Call it when another gateway committed. `nextNonce` is then the relayer's next nonce in the
   * database.
   */
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

  /**
   * Call it with the number of the relayer's transactions on the chain. It is cheap. It is a
   * function value, so that it can be passed on without its object.
   */
  readonly recordCount = (count: number): void => {
    this.#shown = Math.max(this.#shown, count)
    if (this.#next !== null && this.#next < count) this.#next = null
  }

  /**
   * Call it when the database may have changed. The next `refresh` asks the chain, if the chain is
   * reachable.
   */
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
    // The database has a lower nonce than before, so it lost commits. Only the chain knows how
    // many.
    if (!isCompared) {
      this.#comparison = 'must'
      await this.#compare()
    }
    if (stored !== null && this.#shown > stored + NONCES_SKIPPED_MAX) {
      const shown = this.#shown
      this.#shown = 0
      this.#comparison = 'must'
      throw new NonceUnknown(
        `expected the chain to have at most ${NONCES_SKIPPED_MAX} transactions of relayer ${relayer.address} more ` +
          `than the database, which has ${stored}; it says ${shown}`,
      )
    }
    // A commit that was lost before it was sent is gone. Skipping its nonce would leave a gap, and
    // nothing after a gap is mined. If the transaction was sent nevertheless, the anchor that is
    // not mined is made again.
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
   * Gives whether the chain answered. The chain is asked before the database, so a commit in
   * between shows in the database. Throws NonceUnknown when the chain must be asked and is
   * unreachable.
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
        // The only reason to doubt the database was a failure. So anchors are signed without the
        // chain, and sent when it is reachable again.
        this.#comparison = 'done'
        return false
      }
      throw new NonceUnknown(
        `expected the chain to say how many transactions relayer ${address} has, before the first anchor is signed: ${asError(cause).message}`,
        { cause },
      )
    }
  }
}
