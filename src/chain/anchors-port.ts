/**
 * Life of an anchor transaction.
 *
 * - `pending`: stored and signed; not known to be in a block (never sent, sent, or lost by a reorganisation).
 * - `mined`: in a block that may still be reorganised away.
 * - `confirmed`: has the configured number of confirmations. Still watched: a deep reorganisation, or a local chain
 *   that came back from an older state, makes it pending again.
 * - `reverted`: in a block, and failed there. Final: it is reported, and never sent again.
 * - `taken`: never in a block, because another transaction of the relayer used its nonce. Its head
 *   is anchored again by another one. Only a reorganisation that undoes that other transaction
 *   makes it pending again.
 */
export type AnchorState = 'pending' | 'mined' | 'confirmed' | 'reverted' | 'taken'

/** One stored anchor transaction. `(relayer, nonce)` is its key; `raw` never changes once stored. */
export type Anchor = {
  /** Address of the account that pays, 0x, lower case. */
  readonly relayer: string
  readonly nonce: number
  /** Keccak-256 of `raw`, 0x, lower case: the `tx_hash` that callers were given. */
  readonly txHash: string
  /** The signed transaction, 0x hex, exactly as `eth_sendRawTransaction` takes it. */
  readonly raw: string
  readonly state: AnchorState
  /** Block that holds it; null while pending. */
  readonly blockNumber: number | null
  readonly blockHash: string | null
}

/** What the chain said of one transaction that it has in a block. */
export type MinedAnchor = {
  readonly nonce: number
  readonly blockNumber: number
  /** 0x, lower case. */
  readonly blockHash: string
  /** False when the receipt's status is 0 (reverted). */
  readonly succeeded: boolean
  readonly gasUsed: number
}

/**
 * What the broadcaster needs of the database; src/chain/anchors-store.ts implements it. A commit takes
 * the next nonce and stores the transaction in one database transaction; nonces are only left out
 * where the chain has transactions of the relayer that the database lost.
 */
export type AnchorsStore = {
  /** Anchors of `relayer` with nonce ≥ `nonce`, ascending, at most `limit`. */
  listFrom(relayer: string, nonce: number, limit: number): Promise<readonly Anchor[]>
  /** Lowest nonce in state pending or mined; null when there is none. */
  lowestUnsettled(relayer: string): Promise<number | null>
  /** Highest nonce stored; null when there is none. */
  highestNonce(relayer: string): Promise<number | null>
  /** Sets each row mined, or reverted when it did not succeed, with its block and gas. Idempotent. */
  markMined(relayer: string, rows: readonly MinedAnchor[]): Promise<void>
  /** Sets the pending ones among these rows taken. Idempotent. */
  markTaken(relayer: string, nonces: readonly number[]): Promise<void>
  /** Mined rows with nonce ≤ `throughNonce` become confirmed. Others are left as they are. */
  markConfirmed(relayer: string, throughNonce: number): Promise<void>
  /** Every row with nonce ≥ `fromNonce`, whatever its state, becomes pending again and loses its block. */
  markLost(relayer: string, fromNonce: number): Promise<void>
}
