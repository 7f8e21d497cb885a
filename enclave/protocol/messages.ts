import type { EncryptionKey } from '../../attestation/encryption-key.ts'
import type { BootHead } from '../../attestation/evidence/boot-statement.ts'
import type { LogProof } from '../../attestation/log-proof-form.ts'
import type { Receipt } from '../../attestation/receipt.ts'

/**
 * What the gateway and the enclave say to each other: HTTP/1.1 over one Unix socket (README.md of
 * enclave). Bodies are UTF-8 JSON unless said otherwise. The enclave is the one that is trusted;
 * the gateway's values (context, limits) only ever influence what the gateway itself receives.
 *
 * The version stands for what both must understand to work together at all, and is part of the boot
 * configuration, whose digest relying parties keep. A path that is added leaves it as it is: a
 * gateway that asks an enclave without it gets `invalid_call` (404) and does without. The
 * measurements say which code answers.
 *
 * Version 2: streams end with the event `last`; receipts are of version 2. Version 3: receipts are
 * of version 3, and callers may demand a credential. A gateway still works with enclaves of older
 * versions, so that gateways are replaced first and nothing that an older enclave sealed is left
 * behind.
 */
export const PROTOCOL_VERSION = 3

/** Versions of enclaves that a gateway of this version works with. */
export const PROTOCOL_VERSIONS: readonly number[] = [1, 2, 3]

/** Paths of the enclave's socket, by the call they serve. */
export const ENCLAVE_PATHS = {
  /** GET → Identity */
  identity: '/v1/identity',
  /**
   * POST caller's exact body bytes, CALL_HEADER → SealedNotice, or text/event-stream, or
   * EnclaveFault
   */
  completions: '/v1/completions',
  /** POST frames of EHBP, CALL_HEADER → EncryptedRecord after EncryptedRecord, or EnclaveFault */
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

/** Request header of a completion call: base64url of the JSON of a CompletionCall. */
export const CALL_HEADER = 'x-affidavit-call'

/** One row of the measured provider table. */
export type ProviderEntry = {
  /** Stable lower-case name, e.g. `openai`; operator credentials are kept under it. */
  readonly name: string
  /** Scheme, host and port, e.g. `https://api.openai.com`. http only on loopback. */
  readonly origin: string
  /** Absolute path of its OpenAI-compatible chat endpoint, e.g. `/v1/chat/completions`. */
  readonly path: string
  /**
   * Model patterns, `*` matching any run of characters; the first entry with a match serves the
   * call.
   */
  readonly models: readonly string[]
}

/**
 * What the attestation document's `user_data` is the digest of: SHA-256 of the JCS of exactly this
 * object.
 */
export type BootConfiguration = {
  readonly protocol_version: number
  readonly providers: readonly ProviderEntry[]
  /** SHA-256 (hex) of the PEM bundle of CAs that provider TLS is verified against. */
  readonly ca_sha256: string
  readonly chain_id: number
  /** 0x, lower case. */
  readonly contract: string
}

export type Identity = {
  readonly boot_configuration: BootConfiguration
  /** 0x + 65 bytes uncompressed secp256k1 point. */
  readonly public_key: string
  /** The signing account's address, 0x, lower case; the log's id. */
  readonly notary: string
  /** Current attestation document, standard base64. */
  readonly attestation: string
  /**
   * Keys that calls may be encrypted to, the newest first, each signed by the notary. An older
   * enclave gives no keys.
   */
  readonly encryption_keys?: readonly EncryptionKey[]
  /** Leaves in the log so far, and how many of them the gateway has acknowledged. */
  readonly log: { readonly size: number; readonly acknowledged: number }
}

export type CompletionCall = {
  /** Opaque to the enclave; handed back with the sealed completion. At most CONTEXT_BYTES_MAX. */
  readonly context: string
  /** The provider the credential is for. The enclave refuses when the model chooses another one. */
  readonly provider: string
  /** Sent to the provider as `Authorization: Bearer <credential>`; null sends none. */
  readonly credential: string | null
  /** Whether that is the caller's own, and not the operator's. Default: false. */
  readonly is_callers?: boolean
  /**
   * Whether the call goes on when the gateway closes the connection, so that its record can be
   * found by a gateway that did not see its answer. Default: false. An older enclave ignores it.
   */
  readonly outlives_gateway?: boolean
  /**
   * Whether the notice brings the completion, for a gateway that does not pull it: another one
   * commits the log. Default: false. An older enclave ignores it.
   */
  readonly tells_completion?: boolean
}

/** The gateway's part of an encrypted call, of which it sees no more than this. */
export type EncryptedCall = {
  /** As in CompletionCall. */
  readonly context: string
  /**
   * The operator's credentials by provider, since the gateway does not know the model. The enclave
   * takes the one that it needs.
   */
  readonly credentials: Readonly<Record<string, string>>
  /** `Ehbp-Encapsulated-Key`: 64 hex digits. */
  readonly encapsulated_key: string
  /**
   * The caller's own credential at the provider, sealed to the same key (design: Encrypted calls):
   * base64url of encapsulated key and ciphertext; null without one.
   */
  readonly sealed_credential: string | null
}

/**
 * What the body of an encrypted answer is made of: records of one byte for the kind, four for the
 * length (big-endian), and so many of content.
 */
export const ENCRYPTED_RECORDS = {
  /** JSON of EncryptedHead; comes first. */
  head: 1,
  /** A frame of EHBP, with its own length: for the caller, as it is. */
  frame: 2,
  /** JSON of EncryptedSealed: the gateway commits, and brings an AnchorProof with its next pull. */
  sealed: 3,
  /** JSON of EncryptedFault, for the gateway: the caller gets the fault in the frames. */
  fault: 4,
} as const

/** How the caller is answered. The rest of the answer is encrypted. */
export type EncryptedHead = {
  readonly status: number
  readonly content_type: string
  readonly retry_after_seconds: number | null
  /** Of an error: false where trying again cannot help. */
  readonly should_retry: boolean
}

/** A sealed call, with what limits need to know. */
export type EncryptedSealed = SealedNotice & {
  /**
   * By which an AnchorProof finds the call: the index of its leaf, as text; '' of an answer that
   * needs none. An older enclave gives other ids, and takes proofs one by one.
   */
  readonly call: string
  readonly model: string
  readonly usage: TokenUsage | null
}

/** What the provider stated was used. */
export type TokenUsage = {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
}

/** Why there is no whole answer: for limits and metrics, without words. */
export type EncryptedFault = {
  readonly code: EnclaveFaultCode
  /** What was asked for, as far as it was read; null before. */
  readonly model: string | null
}

/** What only the gateway knows of a call's proof: the enclave puts it into the last frame. */
export type AnchorProof = {
  readonly call: string
  readonly tx_hash: string
  readonly log: LogProof
}

/** Longest context of a completion call, bytes of UTF-8. */
export const CONTEXT_BYTES_MAX = 4096

/** Longest credential of a completion call, bytes: it is printable ASCII. */
export const CREDENTIAL_BYTES_MAX = 4096

/** Longest sealed credential, bytes: encapsulated key, credential and tag. */
export const SEALED_CREDENTIAL_BYTES_MAX = 32 + CREDENTIAL_BYTES_MAX + 16

/** Longest body of a completion call, bytes: the interface's limit, and the gateway's default. */
export const REQUEST_BYTES_MAX = 10 * 1024 * 1024

/** Longest wait that a PullRequest may ask for, milliseconds. */
export const PULL_WAIT_MAX_MS = 60_000

/** Outcome of one completion call that ended with a leaf in the log. */
export type SealedNotice = {
  readonly notary: string
  readonly index: number
  readonly outcome: Receipt['outcome']
  /** The completion, where the call asks for it and its response is short. */
  readonly completion?: NoticeCompletion
}

/** What the gateway that made a call lacks for its record; the members as in SealedCompletion. */
export type NoticeCompletion = {
  readonly response: string
  readonly receipt: string
  readonly signature: string
  readonly document: string
}

/** Longest response that a notice brings, in UTF-16 code units. */
export const NOTICE_RESPONSE_LENGTH_MAX = 64 * 1024

/**
 * Server-sent events of a streamed completion call, in order:
 *
 * 1. `data: <chunk>` any number of times: chunks as the caller gets them, canonical JSON;
 * 2. either `event: last` with the last chunk, to which the gateway adds the proof, and then
 *    `event: sealed` with a SealedNotice (outcome complete);
 *    or `event: fault` with an EnclaveFault, and then `event: sealed` (outcome upstream_error).
 *
 * A stream that the enclave ends without `sealed` left no record. A stream that the gateway left or
 * did not read after its first chunk left a record (outcome client_disconnected; a call that may
 * outlive the gateway is read to its end instead); the gateway finds it with its next pull.
 */
export const STREAM_EVENTS = { last: 'last', sealed: 'sealed', fault: 'fault' } as const

/** Why a completion call gave no answer. `status` is what the caller of the gateway should see. */
export type EnclaveFault = {
  readonly status: number
  readonly code: EnclaveFaultCode
  readonly message: string
  /**
   * For invalid_request: where in the body, as `loc` of the gateway's 422: `['body', 'messages',
   * 0]`.
   */
  readonly loc?: readonly (string | number)[]
  /**
   * For provider_refused and provider_error: the provider's own error code, when it gave one.
   * Provider-controlled text.
   */
  readonly provider_code?: string
  /** For the same: how long the provider wants to be left alone, with fractions. */
  readonly retry_after_seconds?: number
  /** False when the provider says that asking again does not help (`x-should-retry`). */
  readonly should_retry?: boolean
  /**
   * True when the provider was sent the call and did not refuse it (3xx to 5xx): it may have made a
   * completion, which is lost. An older enclave never says so.
   */
  readonly may_be_made?: boolean
}

/** Codes of faults, with the status of each; that of provider_refused is the provider's own 4xx. */
export const FAULT_STATUS = {
  invalid_request: 422, // body is not faithful JSON, or not an object with model and messages (413: too long)
  unsupported_model: 404, // no provider serves this model
  provider_mismatch: 409, // the gateway named another provider than the model chooses
  credential_mismatch: 422, // the caller demanded another credential than the one there is
  provider_error: 502, // the provider answered 5xx, a redirect, or something that is not a completion
  provider_unreachable: 502, // DNS, connect or TLS failure
  provider_timeout: 504, // connect, first-byte, idle or whole-answer timeout
  answer_too_large: 502, // the answer is over a limit, or over the memory there is beside other calls
  log_full: 503, // too many unacknowledged completions
  not_ready: 503, // no attestation document, the clock is off, or shutting down
  too_busy: 503, // too many calls at once
  invalid_call: 400, // the gateway's own call is malformed: header, query or body (404: no path of the protocol)
  log_conflict: 409, // a pull from below what was acknowledged, or from above what was handed over
  bad_ciphertext: 400, // an encrypted call that cannot be opened after its first frame
  unknown_key: 422, // an encrypted call that no key of this enclave opens
  replayed_call: 409, // an encrypted call that was made before
  internal_error: 500,
} as const

/** `provider_refused`: the provider's own client error, with its status and message. */
export type EnclaveFaultCode = keyof typeof FAULT_STATUS | 'provider_refused'

export type PullRequest = {
  /**
   * First index wanted. Everything below it is thereby acknowledged and forgotten by the enclave.
   */
  readonly from: number
  /** Longest wait for the first completion when it is not there yet, milliseconds. */
  readonly wait_ms: number
  /**
   * At most so many completions (the reply's head covers exactly those up to the last one given).
   */
  readonly max: number
  /** Digest of a document the gateway holds already; it is left out of `documents`. */
  readonly known_document: string | null
  /**
   * Of encrypted calls below `from`: their answers end with it. Default: none. An older enclave
   * must not be sent any: the request would be too long for it.
   */
  readonly proofs?: readonly AnchorProof[]
}

/**
 * A completion that is in the enclave's log, as handed to the gateway (again and again until
 * acknowledged).
 */
export type SealedCompletion = {
  readonly index: number
  /**
   * Canonical JSON text of the request without unset members, as hashed; null of an encrypted call.
   */
  readonly request: string | null
  /** Canonical JSON text of the response, as hashed; null of an encrypted call. */
  readonly response: string | null
  /** Of an encrypted call: what its response states; null when that is nothing. */
  readonly usage?: TokenUsage | null
  /** Of an encrypted call: as in EncryptedSealed. An older enclave does not say it here. */
  readonly call?: string
  /** Canonical JSON text of the Receipt; the leaf is over its UTF-8 bytes. */
  readonly receipt: string
  /** 0x + 65 bytes r||s||v, EIP-191 over the 32 bytes of `hash`. */
  readonly signature: string
  /** SHA-256 (hex) of the attestation document that was valid when it was sealed. */
  readonly document: string
  readonly context: string
}

export type PullReply = {
  readonly notary: string
  readonly public_key: string
  /** Null when `completions` is empty. `size` = last index given + 1. */
  readonly head: { readonly size: number; readonly root: string; readonly signature: string } | null
  readonly completions: readonly SealedCompletion[]
  /** Attestation documents that `completions` name, base64 by digest, but for `known_document`. */
  readonly documents: Readonly<Record<string, string>>
}

/**
 * Asks for a document over the log as it is now. The hash is the gateway's word and passes through
 * unread. With an old block's hash the document shows less. With a hash that no block has it shows
 * no "not before" (relying parties look the hash up). The gateway cannot name a block that is not
 * there yet, or choose anything else in the document.
 */
export type HeadAttestationRequest = {
  /** Hash of a recent block, 0x and 64 hex digits in lower case. */
  readonly block_hash: string
}

/**
 * The log's head when the call arrived, of all leaves, acknowledged or not; not signed by the
 * account, but attested.
 */
export type HeadAttestationReply = {
  readonly size: number
  /** Hex without prefix. */
  readonly root: string
  /**
   * Attestation document, base64: over the key, the block's hash as nonce, and
   * headAttestationUserData.
   */
  readonly document: string
}

/**
 * Shows an enclave whose log is empty the newest heads of the logs that there are, each signed by
 * its notary for the enclave's own chain and contract; at most BOOT_HEADS_MAX, in ascending order
 * of their notaries. Which there are is the gateway's word.
 */
export type BootStatementRequest = { readonly heads: readonly BootHead[] }

/** The first statement that the enclave made. It makes no other. */
export type BootStatementReply = {
  readonly heads: readonly BootHead[]
  /** Attestation document, base64: over the key, no nonce, and bootStatementUserData. */
  readonly document: string
}
