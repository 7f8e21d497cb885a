import type { Rpc } from '../../client/rpc.ts'
import type { Logger } from '../observability/logger.ts'
import type { Anchor, AnchorsStore } from './anchors-store.ts'
import {
  type ChainView,
  fetchChainView,
  fetchReceipts,
  hasCode,
  type TransactionReceipt,
} from './chain-reads.ts'
import {
  findFork,
  findNewestPlaced,
  isOnChain,
  PAGE_ROWS,
  type PlacedAnchor,
} from './fork-detection.ts'

/**
 * The chain answers, but not so that anchors can be sent to it. Stays until somebody changes
 * something.
 */
export class ChainFault extends Error {
  override readonly name = 'ChainFault'
  readonly code: 'wrong_chain' | 'no_contract' | 'nonce_gap'
  constructor(code: ChainFault['code'], message: string) {
    super(message)
    this.code = code
  }
}

/** For so long nothing may move before a gateway does the work of the one whose turn it is. */
const STANDBY_PATIENCE_MS = 30_000
/** How long it then does that work. */
const TAKEOVER_MS = 60_000

export type RoundOptions = {
  readonly rpc: Rpc
  readonly anchors: AnchorsStore
  /** 0x, lower case; the only user of its nonces. */
  readonly relayer: string
  readonly chainId: number
  /**
   * Nothing is sent while there is no contract here: a call to an empty address would succeed and
   * anchor nothing.
   */
  readonly contract: string
  /** An anchor is confirmed when its block and those on top of it are this many. */
  readonly confirmations: number
  /** Most transactions that are in flight at a time. */
  readonly windowMax: number
  /** What was sent and not mined is sent again after this long without any progress. */
  readonly rebroadcastMs: number
  /**
   * A nonce that is used on the chain, with no receipt for its transaction for this long, was taken
   * by another one.
   */
  readonly takenAfterMs: number
  /** Whether it is this gateway that brings them onto the chain, of several on the database. */
  readonly isOurs: () => boolean
  /** Called in each round with the number of the relayer's transactions that are in blocks. */
  readonly onCount: (count: number) => void
  /** Milliseconds, monotonic. */
  readonly now: () => number
  readonly log: Logger
}

export type RoundResult = {
  readonly view: ChainView
  readonly highestNonce: number | null
  /** Nothing is left to do until there is a new anchor. */
  readonly isSettled: boolean
  /** Another gateway does what is to be done. */
  readonly isStandby: boolean
  /** What the endpoint said to a transaction that it did not take; null when it took all. */
  readonly rejection: string | null
}

/**
 * Compares the store with the chain, one round at a time, and does what is due. The nonce is the
 * guide: the chain's count of the relayer's transactions says what to send (everything from it on)
 * and what to ask receipts for (everything below). What is remembered between rounds only saves
 * work: without it a round does more and comes to the same.
 */
export class BroadcastRounds {
  readonly #options: RoundOptions
  /** No pending anchor below the chain's nonce is under this one; null: ask the store. */
  #mineFrom: number | null = null
  /**
   * No mined, unconfirmed anchor is under this one, and that one has enough confirmations from this
   * block on.
   */
  #confirmFrom = 0
  #confirmAtBlock = 0
  /**
   * The newest anchor with a block. While its block is the chain's, so are the blocks of all
   * anchors before it.
   */
  #tip: PlacedAnchor | null = null
  /** Everything in flight under this nonce was sent, and all of it together last at this time. */
  #sent = { through: 0, wholeAt: 0 }
  #progress = { nonce: 0, at: 0 }
  /** How far another gateway that sends these was seen to be, and since when. */
  #elsewhere = { state: '', at: 0 }
  #takenOverUntil = Number.NEGATIVE_INFINITY
  #rejection: string | null = null
  /** Nonces used on the chain without a receipt, and since when. */
  readonly #missingSince = new Map<number, number>()
  #takenCount = 0
  #revertedCount = 0

  constructor(options: RoundOptions) {
    this.#options = options
  }

  /** Anchors seen to fail on the chain since the start. */
  get revertedCount(): number {
    return this.#revertedCount
  }

  /** Anchors whose nonce another transaction used, since the start. */
  get takenCount(): number {
    return this.#takenCount
  }

  /**
   * One round: takes back what a reorganisation undid, records what was mined, confirms, sends. May
   * be broken off at any point and run again: every step is repeatable. Throws RpcError,
   * ChainFault, and what the store throws.
   */
  async run(signal: AbortSignal): Promise<RoundResult> {
    const { rpc, anchors, relayer, chainId, windowMax, now, onCount } = this.#options
    const view = await fetchChainView(rpc, relayer, signal)
    if (view.chainId !== chainId) {
      throw new ChainFault(
        'wrong_chain',
        `expected chain ${chainId}, the endpoint serves ${view.chainId}`,
      )
    }
    onCount(view.nonce)
    const highestNonce = await anchors.highestNonce(relayer)
    if (highestNonce === null)
      return { view, highestNonce, isSettled: true, isStandby: false, rejection: null }
    if (await this.#isStandby(view)) {
      this.#forget()
      return { view, highestNonce, isSettled: true, isStandby: true, rejection: null }
    }
    if (this.#mineFrom === null) {
      this.#mineFrom = (await anchors.lowestUnsettled(relayer)) ?? highestNonce + 1
      this.#confirmFrom = this.#mineFrom
    }
    if (view.nonce > this.#progress.nonce) this.#progress = { nonce: view.nonce, at: now() }
    const flight = await anchors.listFrom(relayer, view.nonce, windowMax)
    // The chain has fewer of our transactions than it had: a reorganisation, or a local chain from
    // an older state.
    if (flight.some((anchor) => anchor.state !== 'pending'))
      await this.#takeBack(view.nonce, 'nonce')
    const end = Math.min(view.nonce, highestNonce + 1)
    await this.#recordMined(end, signal)
    await this.#confirm(view, end)
    await this.#send(view, flight, signal)
    const isSettled = Math.min(this.#mineFrom, this.#confirmFrom) > highestNonce
    return { view, highestNonce, isSettled, isStandby: false, rejection: this.#rejection }
  }

  /**
   * Whether another gateway sends these. When nothing of them has moved for long, it may hang: two
   * that send the same do no harm.
   */
  async #isStandby(view: ChainView): Promise<boolean> {
    const { anchors, relayer, now, isOurs } = this.#options
    if (isOurs()) return false
    const lowest = await anchors.lowestUnsettled(relayer)
    const state = `${lowest}/${view.nonce}`
    if (now() < this.#takenOverUntil) return false
    if (lowest === null || state !== this.#elsewhere.state) this.#elsewhere = { state, at: now() }
    if (now() - this.#elsewhere.at < STANDBY_PATIENCE_MS) return true
    this.#takenOverUntil = now() + TAKEOVER_MS
    this.#elsewhere = { state: '', at: 0 }
    return false
  }

  /** What others do meanwhile is read anew. */
  #forget(): void {
    this.#mineFrom = null
    this.#confirmFrom = 0
    this.#confirmAtBlock = 0
    this.#tip = null
    this.#sent = { through: 0, wholeAt: 0 }
    this.#rejection = null
    this.#missingSince.clear()
  }

  async #takeBack(fromNonce: number, evidence: 'nonce' | 'block'): Promise<void> {
    const { anchors, relayer, now, log } = this.#options
    log.warn(
      { relayer, from_nonce: fromNonce, evidence },
      'anchors are off the chain and are looked after again',
    )
    await anchors.markLost(relayer, fromNonce)
    this.#mineFrom = Math.min(this.#mineFrom ?? fromNonce, fromNonce)
    this.#confirmFrom = Math.min(this.#confirmFrom, fromNonce)
    this.#confirmAtBlock = 0
    this.#sent = { through: Math.min(this.#sent.through, fromNonce), wholeAt: 0 }
    this.#progress = { nonce: fromNonce, at: now() }
    this.#tip = null
  }

  /** Asks for the receipts of pending anchors under `end` and stores what they say. */
  async #recordMined(end: number, signal: AbortSignal): Promise<void> {
    const { rpc, anchors, relayer } = this.#options
    let cursor = this.#mineFrom ?? 0
    let firstOpen: number | null = null
    // What is taken back is asked for in the next round: #mineFrom stays where that put it.
    if (cursor >= end && !(await this.#checkTip(end, signal))) return
    while (cursor < end) {
      const page = await anchors.listFrom(relayer, cursor, Math.min(PAGE_ROWS, end - cursor))
      const last = page.at(-1)
      if (last === undefined) break
      const open = page.filter(({ nonce, state }) => nonce < end && state === 'pending')
      const hashes = open.map((anchor) => anchor.txHash)
      const receipts = await fetchReceipts(rpc, hashes, signal)
      // After the receipts and before storing them: so all stored blocks are of one chain (see
      // #tip).
      if (!(await this.#checkTip(end, signal))) return
      await this.#store(open, receipts)
      // Each is asked, so that each one's time without a receipt runs.
      const missing = open.filter((_, at) => !receipts[at])
      const taken = missing.filter((anchor) => this.#isTaken(anchor))
      await this.#storeTaken(taken)
      firstOpen ??= missing.find((anchor) => !taken.includes(anchor))?.nonce ?? null
      cursor = last.nonce + 1
    }
    this.#mineFrom = firstOpen ?? Math.max(this.#mineFrom ?? 0, end)
  }

  async #store(
    open: readonly Anchor[],
    receipts: readonly (TransactionReceipt | null)[],
  ): Promise<void> {
    const { anchors, relayer, log } = this.#options
    const mined = open.flatMap(({ nonce }, at) => {
      const receipt = receipts[at] ?? null
      return receipt === null ? [] : [{ nonce, ...receipt }]
    })
    if (mined.length > 0) await anchors.markMined(relayer, mined)
    for (const row of mined) {
      this.#missingSince.delete(row.nonce)
      if (this.#tip === null || row.nonce > this.#tip.nonce) this.#tip = row
      if (row.succeeded) continue
      this.#revertedCount += 1
      const { nonce, txHash, blockNumber } = row
      log.error(
        { relayer, nonce, tx_hash: txHash, block: blockNumber },
        'anchor reverted on the chain',
      )
    }
  }

  /**
   * Endpoints lag: a receipt may come later than the nonce. One that does not come at all never
   * will.
   */
  #isTaken({ nonce }: Anchor): boolean {
    const { takenAfterMs, now } = this.#options
    const since = this.#missingSince.get(nonce) ?? now()
    this.#missingSince.set(nonce, since)
    return now() - since >= takenAfterMs
  }

  async #storeTaken(taken: readonly Anchor[]): Promise<void> {
    const { anchors, relayer, log } = this.#options
    await anchors.markTaken(
      relayer,
      taken.map(({ nonce }) => nonce),
    )
    for (const { nonce, txHash } of taken) {
      this.#missingSince.delete(nonce)
      this.#takenCount += 1
      log.error(
        { relayer, nonce, tx_hash: txHash },
        'another transaction used the nonce of an anchor; its head is anchored again',
      )
    }
  }

  /**
   * Whether the stored blocks of anchors are still the chain's; if not, takes back those that are
   * not.
   */
  async #checkTip(end: number, signal: AbortSignal): Promise<boolean> {
    const { rpc, anchors, relayer } = this.#options
    this.#tip ??= await findNewestPlaced(anchors, relayer, end)
    if (this.#tip === null || (await isOnChain(rpc, this.#tip, signal))) return true
    await this.#takeBack(await findFork(this.#options, this.#tip.nonce, signal), 'block')
    return false
  }

  async #confirm(view: ChainView, end: number): Promise<void> {
    const { anchors, relayer, confirmations } = this.#options
    if (this.#tip === null || view.blockNumber < this.#confirmAtBlock) return
    let through: number | null = null
    let waiting: Anchor | undefined
    while (waiting === undefined && this.#confirmFrom < end) {
      const page = await anchors.listFrom(
        relayer,
        this.#confirmFrom,
        Math.min(PAGE_ROWS, end - this.#confirmFrom),
      )
      waiting = page.find((anchor) => anchor.nonce >= end || this.#hasToWait(anchor, view))
      const ready = page.filter(({ nonce }) => waiting === undefined || nonce < waiting.nonce)
      through = ready.findLast((anchor) => anchor.state === 'mined')?.nonce ?? through
      if (page.length === 0) break
      this.#confirmFrom = waiting?.nonce ?? (ready.at(-1)?.nonce ?? this.#confirmFrom) + 1
    }
    this.#confirmAtBlock = waiting?.blockNumber ? waiting.blockNumber + confirmations - 1 : 0
    if (through !== null) await anchors.markConfirmed(relayer, through)
  }

  /** Whether an anchor, and so all after it, cannot be confirmed yet. */
  #hasToWait({ state, blockNumber }: Anchor, view: ChainView): boolean {
    if (state === 'pending') return true
    if (state !== 'mined' || blockNumber === null) return false
    return view.blockNumber - blockNumber + 1 < this.#options.confirmations
  }

  async #send(view: ChainView, flight: readonly Anchor[], signal: AbortSignal): Promise<void> {
    const { rpc, contract, rebroadcastMs, now } = this.#options
    const first = flight[0]
    if (first === undefined) {
      this.#rejection = null
      return
    }
    if (first.nonce !== view.nonce) {
      throw new ChainFault(
        'nonce_gap',
        `the chain expects nonce ${view.nonce}, the next stored is ${first.nonce}`,
      )
    }
    const isStalled = now() - Math.max(this.#progress.at, this.#sent.wholeAt) >= rebroadcastMs
    const from = isStalled ? view.nonce : Math.max(view.nonce, this.#sent.through)
    const due = flight.filter((anchor) => anchor.nonce >= from)
    const last = due.at(-1)
    if (last === undefined) return
    if (!(await hasCode(rpc, contract, signal))) {
      throw new ChainFault('no_contract', `there is no contract at ${contract}`)
    }
    const calls = due.map((anchor) => ({ method: 'eth_sendRawTransaction', params: [anchor.raw] }))
    const replies = await rpc.batch(calls, signal)
    this.#sent = {
      through: last.nonce + 1,
      wholeAt: from === view.nonce ? now() : this.#sent.wholeAt,
    }
    const refusals = replies.flatMap((reply) => (reply.kind === 'error' ? [reply.message] : []))
    this.#rejection = refusals.find((message) => !HARMLESS_REFUSAL.test(message)) ?? null
  }
}

/**
 * Refusals of a transaction that was sent before and is in the pool or mined, as geth, erigon,
 * nethermind, besu, reth and anvil put them. Only for what is reported: whether a transaction made
 * it is decided by nonce and receipt.
 */
const HARMLESS_REFUSAL =
  /already known|already imported|already exists|known transaction|nonce (is )?too low|OldNonce/i
