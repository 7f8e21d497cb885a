import { asError } from '../api/errors.ts'
import type { Logger } from '../observability/logger.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import { CommitRaceLost, type NonceStore } from './relayers-store.ts'

/**
 * How long a running service waits for the chain when it doubts the database; at the start it waits
 * as long as it takes.
 */
const DOUBT_TIMEOUT_MS = 2_000

/**
 * Nonces that are skipped at once, at most: ten days of an anchor each second. An endpoint that
 * counts more lies or is of another chain, and what is signed after such a gap is never mined.
 */
export const NONCES_SKIPPED_MAX = 1_000_000

/** Nonces that other gateways may take from under one commit before it fails. */
const RACES_IN_ROW_MAX = 10

/** The relayer whose nonces are given out. */
export type NoncedRelayer = {
  /** 0x, lower case. */
  readonly address: string
  /**
   * How many transactions of it the chain has, those included that wait for a block. Throws when
   * the chain is away.
   */
  readonly countTransactions: (signal?: AbortSignal) => Promise<number>
}

/**
 * The next nonce cannot be known: the database may have been restored to an earlier state, or
 * failed over to a replica that was behind, and the chain, which alone can tell, is away. An anchor
 * that is signed on a guess may never be mined.
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
 * The nonces of one relayer, for all committers of this process: they commit one after the other,
 * so that none takes the nonce of another. What the other gateways on the database take still shows
 * as CommitRaceLost.
 *
 * The database counts them. The chain knows better when the database lost commits: so the two are
 * compared before the first nonce is given out, whenever the chain shows its count (`noteCount`),
 * and after failures (`doubt`). The higher one counts.
 */
export class RelayerNonces {
  /** Called when a commit is made again because another gateway took its nonce. */
  onRace: () => void = () => undefined
  readonly #options: NoncesOptions
  readonly #queue = createSerialQueue()
  #next: number | null = null
  /** The chain was seen to have so many. No nonce under it is free. */
  #shown = 0
  /**
   * The database had this next nonce, or a later one, the last time. A database that has less lost
   * commits.
   */
  #known = 0
  /**
   * The chain has to be asked before anything is given out (`must`), or is asked if it can be
   * (`should`).
   */
  #comparison: 'must' | 'should' | 'done' = 'must'

  constructor(options: NoncesOptions) {
    this.#options = options
  }

  /** Whose they are: address, 0x, lower case. */
  get relayer(): string {
    return this.#options.relayer.address
  }

  /** Reads the next nonce anew. Throws NonceUnknown, and what the database throws. */
  refresh(): Promise<void> {
    return this.#queue.run(async () => {
      this.#next = null
      this.#next = await this.#read()
    })
  }

  /**
   * Runs a commit with the next nonce. It counts as taken when `run` resolves; after a failure it
   * is read anew. When that shows that another gateway took it, `run` is called again.
   */
  use<Result>(run: (nonce: number) => Promise<Result>): Promise<Result> {
    return this.#queue.run(async () => {
      let nonce = this.#next ?? (await this.#read())
      for (let races = 0; ; races++) {
        this.#next = null
        try {
          const result = await run(nonce)
          this.#known = Math.max(this.#known, nonce + 1)
          // The chain may have shown more meanwhile.
          this.#next = this.#shown > this.#known ? null : this.#known
          return result
        } catch (error) {
          if (!(error instanceof CommitRaceLost) || races >= RACES_IN_ROW_MAX) throw error
          const { commits, relayer } = this.#options
          const stored = (await commits.nextNonce(relayer.address)) ?? 0
          // It was lost for another reason, or the database is not what it was.
          if (stored <= nonce || stored < this.#shown) throw error
          this.onRace()
          nonce = stored
        }
      }
    })
  }

  /** Another gateway committed, and this is the relayer's next nonce in the database since. */
  noteTaken({
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
   * Says how many transactions of the relayer the chain was seen to have. Cheap. A function value,
   * so that it can be passed on without its object.
   */
  readonly noteCount = (count: number): void => {
    this.#shown = Math.max(this.#shown, count)
    if (this.#next !== null && this.#next < count) this.#next = null
  }

  /**
   * Says that the database may not be what it was: the chain is asked with the next `refresh`, if
   * it can be reached.
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
    // The database has less than it had, so it lost commits. Only the chain can tell how many.
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
    // What was lost before it was sent is nowhere: to skip its nonces would leave a gap, behind
    // which nothing is mined. Where it was sent after all, the anchor that is not mined is made
    // again.
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
   * between shows in the database. Throws NonceUnknown when the chain has to be asked and is away.
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
        // Only a failure speaks against the database. Anchors are signed all the same, and sent
        // when the chain is back.
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
