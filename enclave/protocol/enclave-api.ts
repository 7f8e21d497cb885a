import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import type { TokenUsage } from '#attestation/dialects/usage.ts'
import type { EncryptionKey } from '#attestation/encryption-key.ts'
import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import type { LogProof } from '#attestation/log-proof-form.ts'
import type { Receipt } from '#attestation/receipt.ts'
import type { SignedRefusal } from '#attestation/refusal.ts'

/**
 * The protocol between gateway and enclave: HTTP/1.1 over one Unix socket (README.md of enclave).
 * Bodies are UTF-8 JSON unless stated otherwise. Only the enclave is trusted. The gateway's values
 * (context, limits) influence only what the gateway itself receives.
 *
 * The version covers everything that gateway and enclave must understand to work together. The
 * version is part of the boot configuration, whose digest relying parties keep. A new path does not
 * change the version: an enclave without the path answers `invalid_call` (404), and the gateway
 * continues without this path.
 */
export const PROTOCOL_VERSION = 1

export const ENCLAVE_PATHS = {
  /** GET → Identity */
  identity: '/v1/identity',
  /**
   * POST caller's exact body bytes, CALL_HEADER → SealedNotice, or text/event-stream, or
   * EnclaveFault. For a dialect other than chat, the path ends with the dialect's name (callPath).
   */
  completions: '/v1/completions',
  /**
   * POST frames of EHBP, CALL_HEADER → EncryptedRecord after EncryptedRecord, or EnclaveFault. The
   * path names the dialect, as for `completions`.
   */
  encrypted: '/v1/encrypted/completions',
  /** POST AnchorProof → {} */
  encryptedProof: '/v1/encrypted/proof',
  /** POST PullRequest → PullReply */
  pull: '/v1/log/pull',
  /** GET ?nonce=<hex> → { document: base64 } */
  attestation: '/v1/attestation',
  /** POST HeadAttestationRequest → HeadAttestationReply */
  attestHead: '/v1/log/attest',
  /** POST BootStatementRequest → BootStatementReply */
  bootStatement: '/v1/boot-statement',
} as const

/** The path of a call: `completions` or `encrypted`, and the dialect unless it is chat. */
export function callPath(path: string, dialect: DialectName): string {
  return dialect === 'chat' ? path : `${path}/${dialect}`
}

/** Request header of a completion call: base64url of the JSON of a CompletionCall. */
export const CALL_HEADER = 'x-affidavit-call'

/** One row of the measured provider table. */
export type ProviderEntry = {
  /** Stable lower-case name, e.g. `openai`. Operator credentials are stored under it. */
  readonly name: string
  /** Scheme, host and port, e.g. `https://api.openai.com`. http only on loopback. */
  readonly origin: string
  /** Absolute path of the OpenAI-compatible chat endpoint, e.g. `/v1/chat/completions`. */
  readonly path: string
  /** Patterns of model ids. `*` matches any characters. The first matching entry is used. */
  readonly models: readonly string[]
  /**
   * SHA-256 (hex) of each accepted subjectPublicKeyInfo. Nothing is sent if the leaf certificate of
   * the connection has another key. Default: every key with a valid certificate.
   */
  readonly keys?: readonly string[]
  /** Endpoints of other dialects. Default: none. */
  readonly endpoints?: Readonly<Partial<Record<DialectName, ProviderEndpoint>>>
}

export type ProviderEndpoint = {
  /** Absolute path, e.g. `/v1/messages`. */
  readonly path: string
  /** The header with the credential. Default: `authorization`, as a bearer token. */
  readonly credential?: 'x-api-key'
}

/** SHA-256 of the JCS of exactly this object is in `user_data` of the attestation document. */
export type BootConfiguration = {
  readonly protocol_version: number
  readonly providers: readonly ProviderEntry[]
  /** SHA-256 (hex) of the PEM bundle of CAs for verifying provider TLS. */
  readonly ca_sha256: string
  readonly chain_id: number
  /** 0x, lower case. */
  readonly contract: string
}

export type Identity = {
  readonly boot_configuration: BootConfiguration
  /** 0x and 65 bytes of hex: uncompressed secp256k1 point. */
  readonly public_key: string
  /** Address of the signing account (0x, lower case). It identifies the log. */
  readonly notary: string
  /** Current attestation document, standard base64. */
  readonly attestation: string
  /** Keys for the encryption of calls, newest first, signed by the notary. */
  readonly encryption_keys: readonly EncryptionKey[]
  /** Number of leaves in the log, and number of leaves that the gateway has acknowledged. */
  readonly log: { readonly size: number; readonly acknowledged: number }
}

export type CompletionCall = {
  /** Not read by the enclave. Returned with the sealed completion. At most CONTEXT_BYTES_MAX. */
  readonly context: string
  /** The credential's provider. The enclave refuses a call whose model selects another provider. */
  readonly provider: string
  /** Sent to the provider in the header that its endpoint requires. Null: no credential is sent. */
  readonly credential: string | null
  /** True for the caller's credential, false for the operator's. Default: false. */
  readonly is_callers?: boolean
  /** Not read by the enclave: the path states it (callPath). Default: chat. */
  readonly dialect?: DialectName
  /** The caller's headers that are part of the hashed request, by lower-case name. Default none. */
  readonly headers?: Readonly<Record<string, string>>
  /**
   * True if the call continues when the gateway closes the connection. Another gateway can then
   * find the record. Default: false.
   */
  readonly outlives_gateway?: boolean
  /**
   * True if the notice must contain the completion, for a gateway that does not commit the log
   * itself. Default: false.
   */
  readonly tells_completion?: boolean
}

/** The gateway's part of an encrypted call. The gateway sees only this. */
export type EncryptedCall = {
  /** As in CompletionCall. */
  readonly context: string
  readonly dialect?: DialectName
  /** The operator's credential for each provider, because the gateway does not know the model. */
  readonly credentials: Readonly<Record<string, string>>
  /** `Ehbp-Encapsulated-Key`: 64 hex digits. */
  readonly encapsulated_key: string
  /**
   * The caller's own credential for the provider, encrypted to the call's key (design: Encrypted
   * calls): base64url of encapsulated key and ciphertext, or null.
   */
  readonly sealed_credential: string | null
  /** The most tokens of all answers. The enclave refuses other requests. Default: no limit. */
  readonly answer_tokens_max?: number
}

/**
 * The body of an encrypted answer consists of records: one byte for the kind, four bytes for the
 * length (big-endian), and the content.
 */
export const ENCRYPTED_RECORDS = {
  /** JSON of EncryptedHead. It is the first record. */
  head: 1,
  /** A frame of EHBP with its length, passed to the caller unchanged. */
  frame: 2,
  /** JSON of EncryptedSealed. The gateway sends the AnchorProof with its next pull. */
  sealed: 3,
  /** JSON of EncryptedFault, for the gateway. The caller gets the fault in an encrypted frame. */
  fault: 4,
} as const

/** The unencrypted part of the caller's answer. The rest is encrypted. */
export type EncryptedHead = {
  readonly status: number
  readonly content_type: string
  readonly retry_after_seconds: number | null
  /** For an error: false if a retry cannot help. */
  readonly should_retry: boolean
}

/** A sealed call, with the model and the usage for the gateway's limits. */
export type EncryptedSealed = SealedNotice & {
  /**
   * Identifies the call in an AnchorProof: the index of its leaf, as text, or '' if the answer
   * needs no AnchorProof.
   */
  readonly call: string
  readonly model: string
  readonly usage: TokenUsage | null
}

/** Why the answer is not complete. The gateway uses this for limits and metrics. */
export type EncryptedFault = {
  readonly code: EnclaveFaultCode
  /** The requested model. Null if the fault occurred before the enclave read the model. */
  readonly model: string | null
}

/** The gateway's part of a call's proof. The enclave puts it into the last frame. */
export type AnchorProof = {
  readonly call: string
  readonly tx_hash: string
  readonly log: LogProof
}

/** Longest context of a completion call, bytes of UTF-8. */
export const CONTEXT_BYTES_MAX = 4096

/** Longest credential of a completion call, bytes. A credential is printable ASCII. */
export const CREDENTIAL_BYTES_MAX = 4096

/** Longest sealed credential, bytes: encapsulated key, credential and tag. */
export const SEALED_CREDENTIAL_BYTES_MAX = 32 + CREDENTIAL_BYTES_MAX + 16

/** Longest body of a completion call, bytes: the interface's limit and the gateway's default. */
export const REQUEST_BYTES_MAX = 10 * 1024 * 1024

/**
 * Longest texts of one completion in a PullReply, bytes of JSON, for any gateway of this version.
 * The strings of the longest request and of an answer of 24 MiB may double: each `"` and `\` of
 * their canonical JSON is escaped once more.
 */
export const COMPLETION_BYTES_MAX = 72 * 1024 * 1024

/** Longest wait that a PullRequest may ask for, milliseconds. */
export const PULL_WAIT_MAX_MS = 60_000

/** The outcome of a completion call with a leaf in the log. */
export type SealedNotice = {
  readonly notary: string
  readonly index: number
  readonly outcome: Receipt['outcome']
  /** The completion, if the call asks for it and its response is short. */
  readonly completion?: NoticeCompletion
}

/** The data for the gateway's record, with the members of SealedCompletion. */
export type NoticeCompletion = {
  readonly response: string
  readonly receipt: string
  readonly signature: string
  readonly document: string
}

/** Longest response in a notice, in UTF-16 code units. */
export const NOTICE_RESPONSE_LENGTH_MAX = 64 * 1024

/**
 * Server-sent events of a streamed completion call, in order:
 *
 * 1. events as the caller gets them, with canonical JSON: `data: <chunk>`, or in a dialect with
 *    named events `event: <type>` and `data: <data>`;
 * 2. either `event: last` with the data of the last event, to which the gateway adds the proof, and
 *    then `event: sealed` with a SealedNotice (outcome complete);
 *    or `event: fault` with an EnclaveFault, and then `event: sealed` (outcome upstream_error).
 *
 * A stream that the enclave ends without `sealed` has no record. If the gateway leaves or stops
 * reading after the first chunk, the record has the outcome client_disconnected, and the gateway
 * gets the record with its next pull. A call with `outlives_gateway` is still read to its end.
 */
export const STREAM_EVENTS = { last: 'last', sealed: 'sealed', fault: 'fault' } as const

/** Why a completion call has no answer. The gateway's caller receives `status`. */
export type EnclaveFault = {
  readonly status: number
  readonly code: EnclaveFaultCode
  readonly message: string
  /**
   * For invalid_request: the place in the body, as in the gateway's 422: `['body', 'messages', 0]`.
   */
  readonly loc?: readonly (string | number)[]
  /** For provider_refused and provider_error: what the provider states, which it controls. */
  readonly provider_status?: number
  readonly provider_code?: string
  readonly provider_type?: string
  readonly provider_param?: string
  /** True if the provider stated the error in a stream with status 200. */
  readonly in_stream?: boolean
  /** For provider_error: the code of the FormatError for which the enclave refused the answer. */
  readonly refused_reason?: string
  /** For provider_refused and provider_error: the wait that the provider asks for. */
  readonly retry_after_seconds?: number
  /** False if the provider states that a retry does not help (`x-should-retry`). */
  readonly should_retry?: boolean
  /**
   * True if the provider may have received the call, and did not answer with 3xx, 4xx or 5xx. If
   * the provider then made a completion, it is lost.
   */
  readonly may_be_made?: boolean
  /** The enclave's signed statement that it made nothing. Only for a request with a nonce. */
  readonly refusal?: SignedRefusal
}

/** The status for each fault's code. */
export const FAULT_STATUS = {
  invalid_request: 422, // the body is not strict JSON with model and messages (413: too long)
  unsupported_model: 404, // no provider serves this model
  provider_mismatch: 409, // the model selects another provider than the gateway named
  notary_mismatch: 422, // the caller demanded another enclave
  credential_mismatch: 422, // the caller demanded another credential than the call has
  provider_refused: 502, // the provider's own client error, whose status replaces this one
  provider_error: 502, // the provider answered with 5xx, with a redirect, or not with a completion
  provider_unreachable: 502, // DNS, connect or TLS failure
  provider_key_mismatch: 502, // the provider's TLS key is not accepted: nothing was sent
  provider_timeout: 504, // connect, first-byte, idle or whole-answer timeout
  answer_too_large: 502, // the answer exceeds a limit or the free memory
  log_full: 503, // too many unacknowledged completions
  not_ready: 503, // no attestation document, a wrong clock, or a shutdown
  too_busy: 503, // too many calls at once
  invalid_call: 400, // the gateway's call is malformed: header, query or body (404: unknown path)
  log_conflict: 409, // a pull below the acknowledged index, or above what the gateway received
  bad_ciphertext: 400, // a later frame of an encrypted call cannot be decrypted
  unknown_key: 422, // this enclave does not have the key of an encrypted call
  replayed_call: 409, // this encrypted call was made before
  internal_error: 500,
} as const

export type EnclaveFaultCode = keyof typeof FAULT_STATUS

export type PullRequest = {
  /** First requested index. Acknowledges all earlier completions, which the enclave then drops. */
  readonly from: number
  /** Longest wait for the first completion, milliseconds. */
  readonly wait_ms: number
  /** Maximum number of completions in the reply. */
  readonly max: number
  /** Digest of a document that the gateway already has. The reply leaves it out of `documents`. */
  readonly known_document: string | null
  /**
   * Proofs that complete the answers of encrypted calls below `from`. Default: empty.
   */
  readonly proofs?: readonly AnchorProof[]
}

/** A completion in the enclave's log, sent with each pull until the gateway acknowledges it. */
export type SealedCompletion = {
  readonly index: number
  /** Canonical JSON text of the request without unset members, as hashed. Null if encrypted. */
  readonly request: string | null
  /** Canonical JSON text of the response, as hashed. Null for an encrypted call. */
  readonly response: string | null
  /** Only for an encrypted call: the usage in its response. Null if the response has no usage. */
  readonly usage?: TokenUsage | null
  /** Only for an encrypted call: see EncryptedSealed. */
  readonly call?: string
  /** Canonical JSON text of the Receipt. The leaf hashes its UTF-8 bytes. */
  readonly receipt: string
  /** 0x and 65 bytes of hex, r||s||v: EIP-191 signature of the 32 bytes of `hash`. */
  readonly signature: string
  /** SHA-256 (hex) of the attestation document that was valid at the sealing. */
  readonly document: string
  readonly context: string
}

export type PullReply = {
  readonly notary: string
  readonly public_key: string
  /** Null when `completions` is empty. `size` is the index of the last completion plus 1. */
  readonly head: { readonly size: number; readonly root: string; readonly signature: string } | null
  readonly completions: readonly SealedCompletion[]
  /** Attestation documents that `completions` name, without `known_document`: base64 by digest. */
  readonly documents: Readonly<Record<string, string>>
}

/**
 * Requests a document about the current log. The gateway chooses the block's hash, and the enclave
 * does not check it. A document with an old block's hash proves less. Relying parties look the hash
 * up, so a hash without a block proves no earliest time. The gateway cannot name a block that
 * does not exist yet, or choose anything else in the document.
 */
export type HeadAttestationRequest = {
  /** Hash of a recent block, 0x and 64 hex digits in lower case. */
  readonly block_hash: string
}

/**
 * The log's head when the call arrived, over all leaves, acknowledged or not. The attestation
 * document confirms the head. The notary does not sign it.
 */
export type HeadAttestationReply = {
  readonly size: number
  /** Hex without prefix. */
  readonly root: string
  /**
   * Attestation document, base64, with the key, the block's hash as nonce, and
   * headAttestationUserData.
   */
  readonly document: string
}

/**
 * Sends the newest heads of the existing logs to an enclave with an empty log: at most
 * BOOT_HEADS_MAX, in ascending order of their notaries. Each notary signed its head for the chain
 * and contract of this enclave. The gateway could send only some of the logs.
 */
export type BootStatementRequest = { readonly heads: readonly BootHead[] }

/** The first and only statement that the enclave made. */
export type BootStatementReply = {
  readonly heads: readonly BootHead[]
  /** Attestation document, base64, with the key and bootStatementUserData, without a nonce. */
  readonly document: string
}
