/** Where a record stands in its log: the signed head of the commit that stored it, and the way from the leaf to it. */
export type LogProof = {
  /** Leaves under the head. */
  readonly size: number
  /** Root of the head, hex. */
  readonly root: string
  /** Notary's EIP-712 signature of the head, 0x hex. */
  readonly signature: string
  /** Inclusion path of the record's leaf, hex, leaf's sibling first (RFC 9162, 2.1.3). */
  readonly path: readonly string[]
}

/** A stored completion with all that proves it. Texts are the canonical bytes that were hashed. Immutable. */
export type StoredRecord = {
  /** uuid; the cursor of history pages. */
  readonly id: string
  /** Signing account, 0x, lower case; the log's id. */
  readonly notary: string
  /** Index of the leaf in the notary's log. */
  readonly index: number
  /** Hash of the completion, 64 hex digits without prefix. */
  readonly hash: string
  /** Canonical JSON texts. */
  readonly request: string
  readonly response: string
  readonly receipt: string
  /** 0x + 65 bytes, uncompressed point. */
  readonly publicKey: string
  /** 0x + 65 bytes r||s||v. */
  readonly signature: string
  /** Transaction that anchors the head of `logProof`, 0x + 32 bytes; never changes. */
  readonly txHash: string
  /** Attestation document, standard base64. */
  readonly attestation: string
  /** Who asked for it; null when the context did not say. */
  readonly accountId: string | null
  readonly requestId: string | null
  /** Unix seconds: when the enclave finished it. */
  readonly createdAt: number
  readonly outcome: 'complete' | 'client_disconnected' | 'upstream_error'
  readonly logProof: LogProof
}

/** One page of the history, newest first. `cursor` is the id of its last record, null when nothing older is left. */
export type RecordPage = { readonly records: readonly StoredRecord[]; readonly cursor: string | null }

/** Whose records a query may see: one account's, or everybody's (null). */
export type RecordScope = { readonly accountId: string | null }

/** Reads of the history. Throws the driver's error when the database fails. */
export type RecordsStore = {
  /** Gives the first record (lowest position) with this hash (hex, no prefix), or null. */
  findByHash(hash: string, scope: RecordScope): Promise<StoredRecord | null>
  /** Gives the record of one leaf, or null while it is not committed. */
  findByIndex(notary: string, index: number): Promise<StoredRecord | null>
  /**
   * Gives the page that follows `cursor` (null: the newest). A cursor that is no record of this very list, or no uuid,
   * gives 'unknown_cursor'. Records added meanwhile never shift a later page.
   */
  list(
    query: RecordScope & { readonly limit: number; readonly cursor: string | null },
  ): Promise<RecordPage | 'unknown_cursor'>
}
