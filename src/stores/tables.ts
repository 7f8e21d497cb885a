import type { GeneratedAlways, Kysely } from 'kysely'
import type { Receipt } from '../../attestation/receipt.ts'

/**
 * Rows as the driver gives them, on both databases alike: bigint is a number (or a RangeError beyond 2^53-1), bytea a
 * Uint8Array, uuid a string. Every `*_at` is Unix seconds. Addresses are text, 0x and lower case; digests, keys,
 * signatures and transactions are raw bytes. migrations/ says the same in SQL.
 */
export type Tables = {
  readonly accounts: AccountRow
  readonly api_keys: ApiKeyRow
  readonly logs: LogRow
  readonly log_nodes: LogNodeRow
  readonly attestation_documents: AttestationDocumentRow
  readonly records: RecordRow
  readonly anchors: AnchorRow
  readonly relayers: RelayerRow
}

/** Query builder over Affidavit's tables; never leaves src/stores. */
export type Queries = Kysely<Tables>

type AccountRow = {
  readonly id: string
  readonly name: string
  readonly created_at: number
}

type ApiKeyRow = {
  /** The public part of the key. */
  readonly id: string
  readonly account_id: string
  /** SHA-256 of the whole key. */
  readonly secret_hash: Uint8Array
  readonly name: string
  readonly created_at: number
  readonly revoked_at: number | null
}

/** One log per notary. `size` and `root` are those of its newest stored head; a commit moves both. */
type LogRow = {
  readonly id: GeneratedAlways<number>
  readonly notary: string
  readonly public_key: Uint8Array
  readonly size: number
  readonly root: Uint8Array
  readonly chain_id: number
  readonly contract: string
  /** Canonical JSON. */
  readonly boot_configuration: string
  readonly created_at: number
}

/** A perfect subtree of a log: 2^level leaves, the first of them leaf `index` × 2^level. */
type LogNodeRow = {
  readonly log_id: number
  readonly level: number
  readonly index: number
  readonly hash: Uint8Array
}

type AttestationDocumentRow = {
  /** SHA-256 of `document`. */
  readonly digest: Uint8Array
  readonly document: Uint8Array
  readonly first_seen_at: number
}

type RecordRow = {
  /** Order of commit, over all logs; what history pages are cut by. */
  readonly position: GeneratedAlways<number>
  readonly id: string
  readonly log_id: number
  readonly index: number
  readonly account_id: string | null
  readonly request_id: string | null
  readonly hash: Uint8Array
  readonly request: string
  readonly response: string
  readonly receipt: string
  readonly signature: Uint8Array
  readonly document_digest: Uint8Array
  readonly relayer: string
  readonly nonce: number
  readonly outcome: Receipt['outcome']
  readonly created_at: number
}

type AnchorRow = {
  readonly relayer: string
  readonly nonce: number
  readonly tx_hash: Uint8Array
  readonly raw: Uint8Array
  readonly log_id: number
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
  readonly state: 'pending' | 'mined' | 'confirmed' | 'reverted'
  readonly block_number: number | null
  readonly block_hash: Uint8Array | null
  readonly gas_used: number | null
  readonly created_at: number
}

type RelayerRow = {
  readonly address: string
  readonly next_nonce: number
}
