import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import { CommitRaceLost, type NonceStore } from './relayers-store.ts'

/**
 * How long a running service waits for the chain if the database may be wrong. At the start, a
 * service waits without a limit.
 */
const DOUBT_TIMEOUT_MS = 2_000

/**
 * The maximum number of nonces that are skipped at once. It is reached after ten days with an
 * anchor each second. An endpoint that reports a higher count is lying or serves another chain. If
 * a transaction is signed after such a gap, it is never mined.
 */
export const NONCES_SKIPPED_MAX = 1_000_000

/**
 * How many times in a row other gateways may take the nonce of a commit. After that, the commit
 * fails.
 */
const RACES_IN_ROW_MAX = 10

/** The relayer whose nonces are assigned to anchors. */
export type NoncedRelayer = {
  /** 0x, lower case. */
  readonly address: string
  /**
   * Returns how many transactions of the relayer the chain has. It includes the transactions that
   * wait for a block. Throws if the chain is unreachable.
   */
  readonly countTransactions: (signal?: AbortSignal) => Promise<number>
}

/**
 * The next nonce cannot be known. The database may have been restored to an earlier state, or
 * replaced by a replica that was behind. Only the chain knows the nonce then, but the chain is
 * unreachable. If an anchor were signed with a guessed nonce, it might never be mined.
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
 * The nonces of one relayer, for all committers in this process. Committers commit one after
 * another, so they never take the same nonce. If another gateway on the database takes a nonce,
 * CommitRaceLost is thrown. The database counts the nonces. If the database has lost commits, only
 * the chain has the right count. So the two counts are compared before the first nonce is assigned,
 * whenever the chain reports its count (`recordCount`), and after failures (`doubt`). The higher
 * count is used.
 */
export class RelayerNonces {
  /** Called when a commit is made again because another gateway took its nonce. */
  onRace: () => void = () => undefined
  readonly #options: NoncesOptions
  readonly #queue = createSerialQueue()
  #next: number | null = null
  /** The chain has reported this many transactions. All nonces below this number are used. */
  #shown = 0
  /**
   * The last known next nonce of the database. If the database has a lower nonce now, it has lost
   * commits.
   */
  #known = 0
  /**
   * `must`: the chain must be asked before a nonce is assigned. `should`: the chain is asked if it
   * can be reached.
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
   * Runs a commit with the next nonce. When `run` resolves, the nonce is taken. If `run` fails, the
   * nonce is read again. If another gateway took the nonce, `run` is called again.
   */
  use<Result>(run: (nonce: number) => Promise<Result>): Promise<Result> {
    return this.#queue.run(async () => {
      let nonce = this.#next ?? (await this.#read())
      for (let races = 0; ; races++) {
        this.#next = null
        try {
          const result = await run(nonce)
          this.#known = Math.max(this.#known, nonce + 1)
          // While the commit ran, the chain may have reported more transactions.
          this.#next = this.#shown > this.#known ? null : this.#known
          return result
        } catch (error) {
          if (!(error instanceof CommitRaceLost) || races >= RACES_IN_ROW_MAX) throw error
          const { commits, relayer } = this.#options
          const stored = (await commits.nextNonce(relayer.address)) ?? 0
          // The commit failed for another reason than a taken nonce, or the database has lost
          // commits.
          if (stored <= nonce || stored < this.#shown) throw error
          this.onRace()
          nonce = stored
        }
      }
    })
  }

  /**
   * Call this when another gateway committed. `nextNonce` is the relayer's next nonce in the
   * database after that commit.
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
   * Call this with the number of the relayer's transactions on the chain. The call costs little.
   * This is a function value, so that it can be passed on without its object.
   */
  readonly recordCount = (count: number): void => {
    this.#shown = Math.max(this.#shown, count)
    if (this.#next !== null && this.#next < count) this.#next = null
  }

  /**
   * Call this when the database may have changed. The next `refresh` asks the chain, if the chain
   * is reachable.
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
    // The database has a lower nonce than before, so it has lost commits. Only the chain shows how
    // many commits are lost.
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
    // If a commit was lost before its transaction was sent, it is gone. Its nonce is not skipped. A
    // skipped nonce would leave a gap, and no transaction after a gap is mined. If the transaction
    // was sent before the loss, two transactions have the same nonce, and only one is mined. The
    // other anchor is then made again.
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
   * Returns true if the chain answered. The chain is asked before the database. So a commit between
   * the two requests is visible in the database. Throws NonceUnknown if the chain must be asked and
   * is unreachable.
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
        // The database was only in doubt because of a failure. So anchors are signed without asking
        // the chain, and are sent when the chain is reachable again.
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
