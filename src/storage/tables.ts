import type { Generated, GeneratedAlways, Kysely } from 'kysely'
import type { Receipt } from '#attestation/receipt.ts'

/**
 * Rows as the driver of either database returns them: bigint is a number (or a RangeError beyond
 * 2^53-1), bytea a Uint8Array, uuid a string. Every `*_at` is Unix seconds, every `*_ms` Unix
 * milliseconds. Addresses are text, with 0x and in lower case. Digests, keys, signatures and
 * transactions are raw bytes. The SQL in migrations/ defines the same tables.
 */
export type Tables = {
  readonly accounts: AccountRow
  readonly admin_acts: AdminActRow
  readonly budgets: BudgetRow
  readonly api_keys: ApiKeyRow
  readonly logs: LogRow
  readonly log_nodes: LogNodeRow
  readonly attestation_documents: AttestationDocumentRow
  readonly records: RecordRow
  readonly anchors: AnchorRow
  readonly unanchored_heads: UnanchoredHeadRow
  readonly anchor_blocks: AnchorBlockRow
  readonly relayers: RelayerRow
  readonly head_attestations: HeadAttestationRow
  readonly boot_statements: BootStatementRow
  readonly nodes: NodeRow
  readonly node_benchmarks: NodeBenchmarkRow
  readonly inferences: InferenceRow
  readonly node_hours: NodeHourRow
  readonly network_minutes: NetworkMinuteRow
  readonly gateway_processes: GatewayProcessRow
  readonly rate_limit_windows: RateLimitWindowRow
  readonly usage_hours: UsageHourRow
  readonly idempotency_keys: IdempotencyKeyRow
  readonly erasures: ErasureRow
  readonly content_keys: ContentKeyRow
  readonly provider_evidence: ProviderEvidenceRow
  readonly provider_evidence_keys: ProviderEvidenceKeyRow
  readonly provider_keys_seen: ProviderKeySeenRow
  readonly provider_turns: ProviderTurnRow
}

/** Only src/storage and the …-store.ts files in other folders use it. */
export type Queries = Kysely<Tables>

type BudgetRow = {
  readonly account_id: string
  /** Empty: the budget is for all keys of the account. */
  readonly key_id: string
  readonly what: string
  readonly per: string
  /** Money is in billionths of the currency's unit. */
  readonly bound: number
  readonly used: Generated<number>
  /** Start of the period that `used` covers, Unix seconds. */
  readonly window_at: Generated<number>
}

type AdminActRow = {
  /** Counts from 1, without gaps. */
  readonly position: number
  readonly at: number
  readonly kind: string
  /** JSON with all facts about the act. */
  readonly entry: string
  /** SHA-256 of the previous act's hash followed by this act's entry. */
  readonly hash: Uint8Array
}

type AccountRow = {
  readonly id: string
  readonly name: string
  readonly created_at: number
  /** Order in which accounts were made. */
  readonly position: GeneratedAlways<number>
  /** Name of a tier in the tiers file. Null: the file's default tier. */
  readonly tier: Generated<string | null>
  /** Null while the account's keys are accepted. */
  readonly disabled_at: Generated<number | null>
  /** Null until the account is deleted. A generated name then replaces `name`. */
  readonly deleted_at: Generated<number | null>
  readonly former_name: Generated<string | null>
  /** Null: the value in the gateway's settings applies. */
  readonly retention_days: Generated<number | null>
  /** The erasure `erasure_id` erased the content of completions that finished up to this time. */
  readonly erased_through: Generated<number | null>
  readonly erasure_id: Generated<number | null>
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
  readonly scopes: Generated<readonly string[]>
  readonly expires_at: Generated<number | null>
  readonly last_used_at: Generated<number | null>
  /** Id of the key that made this key. Null: the operator made it. */
  readonly created_by: Generated<string | null>
  /** Order in which keys were made. */
  readonly position: GeneratedAlways<number>
}

/** One log per notary. `size` and `root` are those of the newest stored head. */
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

/** A perfect subtree of a log: it has 2^level leaves, and its first leaf is `index` × 2^level. */
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
  /** Order of commits over all logs. The pages of the history use this order. */
  readonly position: GeneratedAlways<number>
  readonly id: string
  readonly log_id: number
  readonly index: number
  readonly account_id: string | null
  readonly request_id: string | null
  readonly hash: Uint8Array
  /**
   * Null when request and response are encrypted in `content`, were erased, or were never known.
   */
  readonly request: string | null
  readonly response: string | null
  readonly receipt: string
  readonly signature: Uint8Array
  readonly document_digest: Uint8Array
  /**
   * The record's anchor is the first anchor of the log that covers the record. Null when the anchor
   * was stored later than the record.
   */
  readonly relayer: string | null
  readonly nonce: number | null
  readonly outcome: Receipt['outcome']
  readonly created_at: number
  /** Id of the call that made this record. The caller can choose request_id, but not this id. */
  readonly call_id: string | null
  /** JSON of a call's usage when its content is encrypted, else null. */
  readonly usage: string | null
  /** Request and response, encrypted (content-cipher.ts). */
  readonly content: Generated<Uint8Array | null>
  /** When the erasure `erasure_id` erased request and response. Null: not erased. */
  readonly erased_at: Generated<number | null>
  readonly erasure_id: Generated<number | null>
}

/** An erasure of the content of any number of records. */
type ErasureRow = {
  readonly id: GeneratedAlways<number>
  readonly requested_by: 'operator' | 'account' | 'retention'
  readonly reason: string
  /** Null: all accounts. */
  readonly account_id: string | null
  readonly created_at: number
}

/** A key that now encrypts content, or that encrypted content in the past. */
type ContentKeyRow = {
  /** 16 hex digits. */
  readonly id: string
  readonly first_used_at: number
  /** Null while content that the key encrypted may exist. */
  readonly retired_at: number | null
}

type BootStatementRow = {
  readonly notary: string
  /** JSON. */
  readonly heads: string
  readonly document: Uint8Array
  readonly created_at: number
}

/** The newest head of a log whose last commits have no anchor yet. */
type UnanchoredHeadRow = {
  readonly log_id: number
  /** Number of anchored leaves. The next member is the root over these leaves. */
  readonly first_index: number
  readonly anchored_root: Uint8Array
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
  /** When the oldest unanchored commit was stored. */
  readonly since: number
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
  readonly state: 'pending' | 'mined' | 'confirmed' | 'reverted' | 'taken'
  readonly block_number: number | null
  readonly block_hash: Uint8Array | null
  readonly gas_used: number | null
  readonly created_at: number
  /** The block whose proofs are in anchor_blocks. */
  readonly proven_block_hash: Uint8Array | null
  /**
   * Relayer and nonce of the first anchor of the same head. `attempt` is the number of anchors
   * before this one. Null, null and 0 in the row of the first anchor.
   */
  readonly origin_relayer: Generated<string | null>
  readonly origin_nonce: Generated<number | null>
  readonly attempt: Generated<number>
}

/** Proofs for an anchor. They are valid only while the anchor is in this block. */
type AnchorBlockRow = {
  readonly relayer: string
  readonly nonce: number
  readonly block_hash: Uint8Array
  readonly number: number
  /** RLP. */
  readonly header: Uint8Array
  readonly transaction_index: number
  /** RLP lists of nodes, from root to leaf. */
  readonly transaction_proof: Uint8Array
  readonly receipt_proof: Uint8Array
}

type RelayerRow = {
  readonly address: string
  readonly next_nonce: number
  /** The gateway that tracks this relayer's transactions, until `followed_until`. */
  readonly follower: Generated<string | null>
  readonly followed_until: Generated<number>
}

type NodeRow = {
  readonly node_id: string
  readonly account_id: string
  readonly name: string
  readonly created_at: number
  readonly is_archived: Generated<boolean>
  /** A NodeState. Null before the node's first connection. */
  readonly state: string | null
  /** Null until the hardware is reported. */
  readonly hardware_at: number | null
  readonly operating_system: string | null
  readonly cpu_model: string | null
  readonly cpu_count: number | null
  readonly ram: number | null
  readonly gpu_model: string | null
  readonly gpu_count: number | null
  readonly vram: number | null
  readonly power_limit: number | null
  readonly network_download_speed: number | null
  readonly network_upload_speed: number | null
  readonly version: string | null
  readonly connected_since: number | null
  readonly last_seen_at: number | null
  /**
   * The gateway process that has the node's connection, and the connection's id. Null while the
   * node is not connected.
   */
  readonly process_id: string | null
  readonly connection_id: string | null
  readonly models: Generated<readonly string[]>
  readonly total_uptime_seconds: Generated<number>
  readonly requests_served: Generated<number>
  /** Order in which nodes were made. */
  readonly position: GeneratedAlways<number>
}

type NodeBenchmarkRow = {
  readonly node_id: string
  readonly model: string
  readonly tokens_per_second: number
  readonly created_at: number
  /** Order of measurement. A benchmark that replaces another gets a new position. */
  readonly position: GeneratedAlways<number>
}

type InferenceRow = {
  readonly id: string
  /** Order of arrival. */
  readonly position: GeneratedAlways<number>
  readonly node_id: string
  readonly account_id: string | null
  readonly model: string
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
  readonly time_to_first_token_ms: number | null
  readonly created_at: number
}

/** Sums over one node's inferences in the hour that begins at `hour_at`. */
type NodeHourRow = {
  readonly node_id: string
  readonly hour_at: number
  readonly requests: number
  /** Inferences with a measured time to the first token, and the sum of these times. */
  readonly first_tokens: number
  readonly first_token_ms: number
  readonly prompt_tokens: Generated<number>
  readonly completion_tokens: Generated<number>
}

type NetworkMinuteRow = {
  readonly minute_at: number
  readonly requests: number
}

/** The first and the newest attestation of each size of a log. */
type HeadAttestationRow = {
  readonly log_id: number
  readonly size: number
  readonly is_first: boolean
  readonly root: Uint8Array
  readonly block_number: number
  readonly block_hash: Uint8Array
  readonly document: Uint8Array
  /** The timestamp in the document. */
  readonly created_at: number
}

type GatewayProcessRow = {
  readonly id: string
  /** After this time, the process counts as dead unless it was renewed. */
  readonly expires_at: number
  /** The last settlement batch that was counted. */
  readonly settled_batch: Generated<number>
  /** When the end of the process was first noticed. The row is deleted 600 s later. */
  readonly ended_at: number | null
}

/** `minute` and `day` are the numbers of the windows since the epoch. */
type RateLimitWindowRow = {
  readonly account_id: string
  readonly group_name: string
  readonly minute: number
  readonly minute_requests: number
  readonly minute_tokens: number
  readonly day: number
  readonly day_requests: number
  readonly day_tokens: number
}

/** The hour begins at `hour_at`. */
type UsageHourRow = {
  readonly account_id: string
  readonly hour_at: number
  /** The kind of call, with the rate limiter's name for it. */
  readonly operation: string
  /** One of MODEL_FAMILIES (src/observability/model-family.ts). */
  readonly family: string
  /** Empty when the key is unknown. The model is then unknown too. */
  readonly key_id: Generated<string>
  readonly model: Generated<string>
  readonly requests: number
  readonly tokens: number
  readonly prompt_tokens: Generated<number>
  readonly completion_tokens: Generated<number>
  /** Billionths of the currency's unit. */
  readonly money: Generated<number>
  readonly unpriced_requests: Generated<number>
}

type IdempotencyKeyRow = {
  readonly account_id: string
  readonly key: string
  readonly call_id: string
  /** SHA-256 of the request's path and body. */
  readonly request_hash: Uint8Array
  /** The gateway process that accepted the call. */
  readonly process_id: string
  /** The notary whose log gets the verified completion. Null for other calls. */
  readonly notary: string | null
  /** The unencrypted answer of a call that has no record. */
  readonly answer: string | null
  /** The answer, encrypted. */
  readonly sealed_answer: Generated<Uint8Array | null>
  /** When the gateway abandoned the call, whose outcome is not known. */
  readonly abandoned_at: number | null
  readonly created_at: number
  readonly expires_at: number
}

/** Evidence that an attested provider returned for a nonce. */
type ProviderEvidenceRow = {
  /** SHA-256 of `document`. */
  readonly digest: Uint8Array
  readonly provider: string
  readonly origin: string
  readonly kind: string
  readonly fetched_ms: number
  /** Null: no part of the evidence expires. */
  readonly ends_ms: number | null
  /** JSON of the block from which the nonce was made. Null: the nonce is random. */
  readonly block: string | null
  readonly document: Uint8Array
}

/** A TLS key in a provider's evidence. */
type ProviderEvidenceKeyRow = {
  readonly origin: string
  /** SHA-256 of the key's SubjectPublicKeyInfo. */
  readonly spki: Uint8Array
  /** `fetched_ms` of the evidence. */
  readonly fetched_ms: number
  readonly digest: Uint8Array
}

/** A TLS key of the origin, as seen in a gateway's connection. */
type ProviderKeySeenRow = {
  readonly origin: string
  readonly spki: Uint8Array
  readonly first_seen_ms: number
  readonly last_seen_ms: number
}

/** When the evidence of an origin is collected next. During a collection: when it times out. */
type ProviderTurnRow = {
  readonly origin: string
  readonly kind: string
  readonly due_ms: number
  /** Failures in a row. */
  readonly failures: Generated<number>
}

/** Throws RangeError beyond 2^53-1, where numbers are not exact. */
export function parseInt8(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value))
    throw new RangeError(`expected a bigint within 2^53-1, got ${text}`)
  return value
}
