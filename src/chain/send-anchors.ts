import type { Rpc } from '#client/rpc.ts'
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
  findUndone,
  isOnChain,
  PAGE_ROWS,
  type PlacedAnchor,
} from './fork-detection.ts'

/** The chain answers, but accepts no anchors until the operator changes something. */
export class BroadcastFault extends Error {
  override readonly name = 'BroadcastFault'
  readonly code: 'wrong_chain' | 'no_contract' | 'nonce_gap'
  constructor(code: BroadcastFault['code'], message: string) {
    super(message)
    this.code = code
  }
}

/** If the gateway that sends makes no progress for this time, the standby gateway sends too. */
const STANDBY_PATIENCE_MS = 30_000
/** The standby gateway then sends for this long. */
const TAKEOVER_MS = 60_000

export type RoundOptions = {
  readonly rpc: Rpc
  readonly anchors: AnchorsStore
  /** Address, 0x, lower case. No other program may use the nonces of this account. */
  readonly relayer: string
  readonly chainId: number
  /** Nothing is sent while this address has no contract: calls would succeed but anchor nothing. */
  readonly contract: string
  /** Number of blocks that confirm an anchor: its own block and the blocks on top. */
  readonly confirmations: number
  /** Maximum number of transactions that are sent but not mined. */
  readonly windowMax: number
  /** Unmined transactions are sent again after this time without progress. */
  readonly rebroadcastMs: number
  /** A used nonce counts as taken when its anchor has no receipt after this time. */
  readonly takenAfterMs: number
  readonly isOurs: () => boolean
  /** Called in each round with the number of the relayer's transactions in blocks. */
  readonly onCount: (count: number) => void
  /** Monotonic time in milliseconds. */
  readonly now: () => number
  readonly log: Logger
}

export type RoundResult = {
  readonly view: ChainView
  readonly highestNonce: number | null
  /** True if there is no work until a new anchor arrives. */
  readonly isSettled: boolean
  readonly isStandby: boolean
  /** The endpoint's message if it refused a transaction, otherwise null. */
  readonly rejection: string | null
}

/**
 * Compares the store with the chain in rounds. Sends anchors whose nonces the chain has not used,
 * and reads receipts for used nonces. If the members of this object are lost, only work is
 * repeated.
 */
export class BroadcastRounds {
  readonly #options: RoundOptions
  /** All anchors below this nonce have a result. Null: the store must be read. */
  #mineFrom: number | null = null
  /**
   * All mined anchors below this nonce are confirmed. The anchor with this nonce has enough
   * confirmations from block #confirmAtBlock on.
   */
  #confirmFrom = 0
  #confirmAtBlock = 0
  /**
   * The newest anchor in a block. While this block is in the chain, the blocks of all confirmed
   * anchors are in the chain too.
   */
  #tip: PlacedAnchor | null = null
  /**
   * All unmined anchors below `through` were sent. `wholeAt`: when one round last sent them all.
   */
  #sent = { through: 0, wholeAt: 0 }
  #progress = { nonce: 0, at: 0 }
  /** Last known progress of the gateway that sends, and when the progress last changed. */
  #elsewhere = { state: '', at: 0 }
  #takenOverUntil = Number.NEGATIVE_INFINITY
  #rejection: string | null = null
  /** Used nonces without a receipt, each with the time since which the receipt is missing. */
  readonly #missingSince = new Map<number, number>()
  #takenCount = 0
  #revertedCount = 0

  constructor(options: RoundOptions) {
    this.#options = options
  }

  get revertedCount(): number {
    return this.#revertedCount
  }

  /** Number of anchors whose nonce another transaction used. */
  get takenCount(): number {
    return this.#takenCount
  }

  /**
   * Runs one round. An aborted round can be repeated. Throws RpcError, BroadcastFault, and the
   * store's errors.
   */
  async run(signal: AbortSignal): Promise<RoundResult> {
    const { rpc, anchors, relayer, chainId, windowMax, now, onCount } = this.#options
    const view = await fetchChainView(rpc, relayer, signal)
    if (view.chainId !== chainId) {
      throw new BroadcastFault(
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
    // The relayer's nonce on the chain fell. A reorganisation does this, and so does a local chain
    // that starts from an older state.
    if (flight.some((anchor) => anchor.state !== 'pending'))
      await this.#takeBack(view.nonce, 'nonce')
    const end = Math.min(view.nonce, highestNonce + 1)
    await this.#recordMined(end, signal)
    await this.#confirm(view, end, signal)
    await this.#send(view, flight, signal)
    const isSettled = Math.min(this.#mineFrom, this.#confirmFrom) > highestNonce
    return { view, highestNonce, isSettled, isStandby: false, rejection: this.#rejection }
  }

  /**
   * Returns true while another gateway sends. Returns false after a long time without progress,
   * because that gateway may hang. Sending an anchor twice does no harm.
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

  /**
   * Forgets all progress, because another gateway sends now. Later, everything must be read again.
   */
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
      'anchors are no longer on the chain; they are followed again',
    )
    await anchors.markLost(relayer, fromNonce)
    this.#mineFrom = Math.min(this.#mineFrom ?? fromNonce, fromNonce)
    this.#confirmFrom = Math.min(this.#confirmFrom, fromNonce)
    this.#confirmAtBlock = 0
    this.#sent = { through: Math.min(this.#sent.through, fromNonce), wholeAt: 0 }
    this.#progress = { nonce: fromNonce, at: now() }
    this.#tip = null
  }

  async #recordMined(end: number, signal: AbortSignal): Promise<void> {
    const { rpc, anchors, relayer } = this.#options
    let cursor = this.#mineFrom ?? 0
    let firstOpen: number | null = null
    // After a reorganisation, #checkTip sets #mineFrom back for the next round.
    if (cursor >= end && !(await this.#checkTip(end, signal))) return
    while (cursor < end) {
      const page = await anchors.listFrom(relayer, cursor, Math.min(PAGE_ROWS, end - cursor))
      const last = page.at(-1)
      if (last === undefined) break
      const open = page.filter(({ nonce, state }) => nonce < end && state === 'pending')
      const hashes = open.map((anchor) => anchor.txHash)
      const receipts = await fetchReceipts(rpc, hashes, signal)
      // The check comes between reading and storing. So a block of an earlier round that is gone is
      // noticed before a newer anchor becomes the tip.
      if (!(await this.#checkTip(end, signal))) return
      await this.#store(open, receipts)
      // #isTaken must run for every missing anchor: the first call starts the anchor's time limit.
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

  /** True if a receipt is missing for `takenAfterMs`. Endpoints show receipts much earlier. */
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
   * Returns false if a reorganisation removed the newest anchor's block. The removed anchors are
   * then pending again.
   */
  async #checkTip(end: number, signal: AbortSignal): Promise<boolean> {
    const { rpc, anchors, relayer } = this.#options
    this.#tip ??= await findNewestPlaced(anchors, relayer, end)
    if (this.#tip === null || (await isOnChain(rpc, this.#tip, signal))) return true
    await this.#takeBack(await findFork(this.#options, this.#tip.nonce, signal), 'block')
    return false
  }

  async #confirm(view: ChainView, end: number, signal: AbortSignal): Promise<void> {
    const { rpc, anchors, relayer, confirmations } = this.#options
    if (this.#tip === null || view.blockNumber < this.#confirmAtBlock) return
    let waiting: Anchor | undefined
    while (waiting === undefined && this.#confirmFrom < end) {
      const page = await anchors.listFrom(
        relayer,
        this.#confirmFrom,
        Math.min(PAGE_ROWS, end - this.#confirmFrom),
      )
      waiting = page.find((anchor) => anchor.nonce >= end || this.#hasToWait(anchor, view))
      const ready = page.filter(({ nonce }) => waiting === undefined || nonce < waiting.nonce)
      // The receipts of one round can come from two chains: nodes of an endpoint may disagree, and
      // a reorganisation can happen between two requests. #checkTip sees only the newest block.
      const undone = await findUndone(rpc, ready, signal)
      if (undone !== null) return await this.#takeBack(undone, 'block')
      const through = ready.findLast((anchor) => anchor.state === 'mined')?.nonce
      if (through !== undefined) await anchors.markConfirmed(relayer, through)
      if (page.length === 0) break
      this.#confirmFrom = waiting?.nonce ?? (ready.at(-1)?.nonce ?? this.#confirmFrom) + 1
    }
    this.#confirmAtBlock = waiting?.blockNumber ? waiting.blockNumber + confirmations - 1 : 0
  }

  /** True if the anchor must wait for confirmations. Then every later anchor must wait too. */
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
      throw new BroadcastFault(
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
      throw new BroadcastFault('no_contract', `there is no contract at ${contract}`)
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
 * Refusals that are not reported, because the transaction is already in the pool or mined. geth,
 * erigon, nethermind, besu, reth and anvil send these refusals.
 */
const HARMLESS_REFUSAL =
  /already known|already imported|already exists|known transaction|nonce (is )?too low|OldNonce/i
