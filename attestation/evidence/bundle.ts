import { PUBLIC_KEY_BYTES, SIGNATURE_BYTES } from '../account.ts'
import { decodeBase64, encodeBase64, encodeHex, HASH_BYTES, sha256 } from '../bytes.ts'
import { dialectNamed } from '../dialects/dialect-names.ts'
import { DIALECTS } from '../dialects/dialects.ts'
import { type ErasureStatement, readErasure } from '../erasure.ts'
import { FormatError } from '../errors.ts'
import { isJsonObject, type Json, type JsonObject, memberAt, memberOf } from '../json/value.ts'
import { type LogProof, parseLogProof } from '../log-proof-form.ts'
import { ownMembers } from '../own-members.ts'
import { PROVIDER_EVIDENCE_BYTES_MAX } from '../providers/evidence/evidence-document.ts'
import { parseReceipt, type Receipt } from '../receipt.ts'
import { hashCompletion } from '../record-hash.ts'
import { parseUnanswered, type Unanswered } from '../unanswered.ts'
import { TRANSACTION_BYTES_MAX } from './anchor-transaction.ts'
import { HEADER_BYTES_MAX, TRANSACTION_RECEIPT_BYTES_MAX } from './block.ts'
import { parseBootConfiguration } from './boot-facts.ts'
import {
  BUNDLE_DOCUMENT_BYTES_MAX,
  BUNDLE_FORMAT,
  base64FormOf,
  bundleForms,
  hexOf,
  originOf,
} from './bundle-forms.ts'
import { type BundleSource, parseSource } from './bundle-source.ts'
import { TRIE_NODES_MAX } from './trie.ts'

const { arrayOf, countOf, invalid, membersOf, objectOf, textOf } = bundleForms
const base64Of = base64FormOf(invalid)

/** Maximum number of transactions in addition to `tx_hash`. */
export const REANCHORED_MAX = 64

/** All data that are needed to check one completion (formats.md, Format). */
export type EvidenceBundle = {
  readonly format: typeof BUNDLE_FORMAT
  readonly version: 1
  readonly record: BundleRecord
  /** The attestation document's `user_data` is the digest of this configuration. */
  readonly boot_configuration: JsonObject
  /** The signed transaction that anchors the log's head: 0x hex. Null: not known yet. */
  readonly transaction: string | null
  readonly block: BundleBlock | null
  readonly no_block?: NoBlock
  readonly source?: BundleSource
  /** Evidence of the provider's machine. Absent if it is not known. */
  readonly provider_evidence?: ProviderPart
  /** All events of a stream in order, as its caller received them. Absent: not kept. */
  readonly events?: readonly KeptEvent[]
  /** The call was sent with an `Idempotency-Key`, so its first events may be there twice. */
  readonly idempotent?: true
  /** The caller's statement. Absent: no such requests. */
  readonly unanswered?: readonly Unanswered[]
}

/** A file of several calls has each document once. */
export type ProviderPart = {
  /** Of the document, hex. */
  readonly sha256: string
  /** Standard base64. Absent: an earlier line has it. */
  readonly document?: string
}

/** Events of chats have no name. */
export type KeptEvent =
  | { readonly data: JsonObject }
  | { readonly event: string; readonly data: JsonObject }

/** Why a bundle has no block. Not proved. */
type NoBlock = {
  readonly reason: NoBlockReason
  /** The transaction in the bundle, to look up on the chain: 0x hex. */
  readonly transaction: string
}

export type NoBlockReason = (typeof NO_BLOCK_REASONS)[number]

const NO_BLOCK_REASONS = [
  'not_mined', //    the transaction did not succeed in any block
  'not_read', //     the gateway did not read the block in time
  'not_readable', // the gateway cannot read the block
] as const

/** A stored record without its `id`, because an `id` cannot be verified. */
export type BundleRecord = RequestPart &
  ResponsePart & {
    readonly hash: string
    readonly public_key: string
    readonly signature: string
    readonly tx_hash: string
    /** Later transactions that anchor the head, oldest first. Absent instead of an empty list. */
    readonly reanchored?: readonly string[]
    /** The gateway's statement about parts that it erased. Absent if it erased no part. */
    readonly erased?: ErasureStatement
    /** Standard base64. */
    readonly attestation: string
    readonly receipt: Receipt
    /** Unix seconds. */
    readonly created_at: number
    readonly log: LogProof
  }

/**
 * The request in its hashed form (Dialect.hashedRequest), or its hash if the request is left out.
 */
type RequestPart = { readonly request: JsonObject } | { readonly request_hash: string }

/** The response in its hashed form, or its hash if the response is left out. */
type ResponsePart = { readonly response: JsonObject } | { readonly response_hash: string }

/** The block of the anchor transaction. */
export type BundleBlock = {
  readonly number: number
  /** The hash to look up on the chain: 0x hex. */
  readonly hash: string
  /** RLP, 0x hex. */
  readonly header: string
  readonly transaction_index: number
  /** Nodes in the transactions trie, from the root to the leaf, 0x hex. */
  readonly transaction_proof: readonly string[]
  /** Nodes in the receipts trie, from the root to the leaf, 0x hex. */
  readonly receipt_proof: readonly string[]
}

/**
 * Reads the bundle in attacker-controlled `json`, a result of parseExactJson. The bundle must have
 * exactly the members of the format, each in its canonical form, hex in lower case. Throws
 * FormatError `unknown_bundle` (another format or version), `invalid_bundle`, `invalid_log_proof`,
 * `invalid_receipt`, `invalid_call_request`. The messages name the member. Does NOT prove anything:
 * see verifyBundle.
 */
export function parseEvidenceBundle(json: Json): EvidenceBundle {
  const members = isJsonObject(json) ? json : {}
  if (memberOf(members, 'format') !== BUNDLE_FORMAT || memberOf(members, 'version') !== 1)
    throw new FormatError(
      'unknown_bundle',
      `expected format to be ${BUNDLE_FORMAT} and version to be 1`,
    )
  const has = (name: (typeof OPTIONAL_MEMBERS)[number]) => Object.hasOwn(members, name)
  const bundle = membersOf(json, 'the bundle', [...BUNDLE_MEMBERS, ...OPTIONAL_MEMBERS.filter(has)])
  parseBootConfiguration(bundle.boot_configuration)
  const record = parseRecord(bundle.record)
  const block = bundle.block === null ? null : parseBlock(bundle.block)
  return {
    format: BUNDLE_FORMAT,
    version: 1,
    record,
    boot_configuration: objectOf(bundle.boot_configuration, 'boot_configuration'),
    transaction: parseTransaction(bundle.transaction, block),
    block,
    ...(has('no_block') ? { no_block: parseNoBlock(bundle.no_block, { record, block }) } : {}),
    ...(has('source') ? { source: parseSource(bundle.source) } : {}),
    ...(has('provider_evidence')
      ? { provider_evidence: parseProviderPart(bundle.provider_evidence) }
      : {}),
    ...(has('events') ? { events: parseEvents(bundle.events) } : {}),
    ...(has('idempotent') ? { idempotent: parseIdempotent(bundle) } : {}),
    ...(has('unanswered') ? { unanswered: parseUnanswered(bundle.unanswered) } : {}),
  }
}

function parseTransaction(json: Json, block: BundleBlock | null): string | null {
  if (json !== null) return hexOf(json, 'transaction', { max: TRANSACTION_BYTES_MAX })
  if (block !== null) throw invalid('transaction', 'the transaction of the block')
  return null
}

function parseEvents(json: Json | undefined): readonly KeptEvent[] {
  return arrayOf(json, 'events').map((event, at) => {
    const isNamed = isJsonObject(event) && Object.hasOwn(event, 'event')
    const members = membersOf(event, `events.${at}`, isNamed ? NAMED_EVENT : ['data'])
    const data = objectOf(members.data, `events.${at}.data`)
    return isNamed ? { event: textOf(members.event, `events.${at}.event`), data } : { data }
  })
}

const NAMED_EVENT: readonly ('event' | 'data')[] = ['event', 'data']

function parseIdempotent({ events, idempotent }: Readonly<Record<string, Json>>): true {
  if (idempotent !== true || events === undefined)
    throw invalid('idempotent', 'true, beside events, or absent')
  return true
}

/** Checks only the digest of the document: judgeProvider reads the document. */
function parseProviderPart(json: Json | undefined): ProviderPart {
  const name = 'provider_evidence'
  const hasDocument = isJsonObject(json) && Object.hasOwn(json, 'document')
  const names: readonly ('sha256' | 'document')[] = ['sha256']
  const part = membersOf(json, name, hasDocument ? [...names, 'document'] : names)
  const digest = hexOf(part.sha256, `${name}.sha256`, { exactly: HASH_BYTES, prefix: '' })
  if (!hasDocument) return { sha256: digest }
  if (part.document === lastPart.document && digest === lastPart.sha256) return lastPart
  const document = base64Of(part.document, `${name}.document`, PROVIDER_EVIDENCE_BYTES_MAX)
  if (encodeHex(sha256(decodeBase64(document))) !== digest)
    throw invalid(`${name}.document`, 'the document whose SHA-256 is beside it')
  lastPart = { sha256: digest, document }
  return lastPart
}

/** The lines of a file share a document of up to 4 MiB, which is hashed once. */
let lastPart: ProviderPart = { sha256: '' }

const OPTIONAL_MEMBERS = [
  'no_block',
  'source',
  'provider_evidence',
  'events',
  'idempotent',
  'unanswered',
] as const

const BUNDLE_MEMBERS = [
  'format',
  'version',
  'record',
  'boot_configuration',
  'transaction',
  'block',
] as const

const BOUND_MEMBERS = [
  'hash',
  'public_key',
  'signature',
  'tx_hash',
  'attestation',
  'receipt',
  'created_at',
  'log',
] as const

const BLOCK_MEMBERS = [
  'number',
  'hash',
  'header',
  'transaction_index',
  'transaction_proof',
  'receipt_proof',
] as const

function parseRecord(json: Json): BundleRecord {
  const given = objectOf(json, 'record')
  const request = Object.hasOwn(given, 'request') ? 'request' : 'request_hash'
  const response = Object.hasOwn(given, 'response') ? 'response' : 'response_hash'
  const again = Object.hasOwn(given, 'reanchored') ? (['reanchored'] as const) : []
  const gone = Object.hasOwn(given, 'erased') ? (['erased'] as const) : []
  const record = membersOf(given, 'record', [
    request,
    response,
    ...BOUND_MEMBERS,
    ...again,
    ...gone,
  ])
  const receipt = parseBundleReceipt(record.receipt)
  return {
    ...parseRequestPart(record, receipt),
    ...parseResponsePart(record),
    hash: hexOf(record.hash, 'record.hash', { exactly: HASH_BYTES, prefix: '' }),
    public_key: hexOf(record.public_key, 'record.public_key', { exactly: PUBLIC_KEY_BYTES }),
    signature: hexOf(record.signature, 'record.signature', { exactly: SIGNATURE_BYTES }),
    tx_hash: hexOf(record.tx_hash, 'record.tx_hash', { exactly: HASH_BYTES }),
    ...(again.length === 0 ? {} : { reanchored: parseReanchored(record.reanchored) }),
    ...(gone.length === 0 ? {} : { erased: parseErasure(record.erased) }),
    attestation: base64Of(record.attestation, 'record.attestation', BUNDLE_DOCUMENT_BYTES_MAX),
    receipt,
    created_at: countOf(record.created_at, 'record.created_at'),
    log: parseLogProof(record.log),
  }
}

function parseReanchored(json: Json | undefined): readonly string[] {
  const name = 'record.reanchored'
  const hashes = arrayOf(json, name, { min: 1, max: REANCHORED_MAX }, ' transaction hashes')
  return hashes.map((hash, at) => hexOf(hash, `${name}.${at}`, { exactly: HASH_BYTES }))
}

function parseErasure(json: Json | undefined): ErasureStatement {
  const erased = readErasure(json)
  if (erased === null)
    throw invalid('record.erased', 'at (a count), by (who asked for it) and reason, and no more')
  return erased
}

function parseBundleReceipt(json: Json): Receipt {
  const receipt = parseReceipt(json)
  originOf(receipt.provider.origin, 'record.receipt.provider.origin')
  return receipt
}

function parseRequestPart(record: JsonObject, receipt: Receipt): RequestPart {
  if (!Object.hasOwn(record, 'request'))
    return {
      request_hash: hexOf(record.request_hash, 'record.request_hash', {
        exactly: HASH_BYTES,
        prefix: '',
      }),
    }
  const request = objectOf(record.request, 'record.request')
  const dialect = DIALECTS[receipt.dialect]
  dialect.readRequest(request)
  // Refuses members of null, because the hash does not cover them: anyone could add or remove them.
  if (dialect.hashedRequest(request) !== request)
    throw invalid('record.request', 'without members of null, also in its messages')
  return { request }
}

function parseResponsePart(record: JsonObject): ResponsePart {
  if (Object.hasOwn(record, 'response'))
    return { response: objectOf(record.response, 'record.response') }
  return {
    response_hash: hexOf(record.response_hash, 'record.response_hash', {
      exactly: HASH_BYTES,
      prefix: '',
    }),
  }
}

function parseBlock(json: Json): BundleBlock {
  const block = membersOf(json, 'block', BLOCK_MEMBERS)
  return {
    number: countOf(block.number, 'block.number'),
    hash: hexOf(block.hash, 'block.hash', { exactly: HASH_BYTES }),
    header: hexOf(block.header, 'block.header', { max: HEADER_BYTES_MAX }),
    transaction_index: countOf(block.transaction_index, 'block.transaction_index'),
    transaction_proof: parseNodes(block.transaction_proof, 'block.transaction_proof'),
    receipt_proof: parseNodes(block.receipt_proof, 'block.receipt_proof'),
  }
}

function parseNoBlock(
  json: Json | undefined,
  { record, block }: Pick<EvidenceBundle, 'record' | 'block'>,
): NoBlock {
  if (block !== null) throw invalid('no_block', 'absent, since there is a block')
  const given = membersOf(json, 'no_block', ['reason', 'transaction'])
  const reason = NO_BLOCK_REASONS.find((one) => one === given.reason)
  if (reason === undefined)
    throw invalid('no_block.reason', `one of ${NO_BLOCK_REASONS.join(', ')}`)
  const transaction = hexOf(given.transaction, 'no_block.transaction', { exactly: HASH_BYTES })
  if (![record.tx_hash, ...(record.reanchored ?? [])].includes(transaction))
    throw invalid('no_block.transaction', 'record.tx_hash, or one of record.reanchored')
  return { reason, transaction }
}

/** The largest node is a leaf: a receipt, its path and prefixes. A branch has at most 532 bytes. */
const NODE_BYTES_MAX = TRANSACTION_RECEIPT_BYTES_MAX + 64

function parseNodes(json: Json, name: string): readonly string[] {
  const nodes = arrayOf(json, name, { min: 1, max: TRIE_NODES_MAX }, ' nodes')
  return nodes.map((node, at) => hexOf(node, `${name}.${at}`, { max: NODE_BYTES_MAX }))
}

/**
 * Creates the bundle from a stored record (interface 2.4, with `receipt` and `log`) and other data
 * that the gateway keeps. Leaves out what cannot be verified: the record's `id` and the request's
 * unset members. Throws FormatError as parseEvidenceBundle does. Does NOT check that the parts
 * belong together: see verifyBundle.
 */
export function createBundle(parts: {
  readonly record: JsonObject
  readonly bootConfiguration: JsonObject
  /** Raw anchor transaction, 0x hex. Null if it is not known yet. */
  readonly transaction: string | null
  /** The block, or the reason why there is no block. Null if neither is known. */
  readonly block: BundleBlock | NoBlock | null
  /** Absent or null if unknown. */
  readonly source?: BundleSource | null
  /** Evidence of the provider as it was collected. Not read here. Absent or null if unknown. */
  readonly providerEvidence?: Uint8Array | null
}): EvidenceBundle {
  const { block, source = null, providerEvidence = null } = parts
  const record = withoutContent(parts.record)
  const request: Json = memberOf(record, 'request') ?? null
  const dialect = memberAt(record, 'receipt', 'dialect')
  const { hashedRequest } = DIALECTS[dialectNamed(dialect)]
  return parseEvidenceBundle({
    format: BUNDLE_FORMAT,
    version: 1,
    record: Object.hasOwn(record, 'request')
      ? { ...record, request: isJsonObject(request) ? hashedRequest(request) : request }
      : record,
    boot_configuration: parts.bootConfiguration,
    transaction: parts.transaction,
    ...(block !== null && 'reason' in block ? { block: null, no_block: block } : { block }),
    ...(source !== null ? { source } : {}),
    ...(providerEvidence !== null ? { provider_evidence: providerPartOf(providerEvidence) } : {}),
  })
}

function providerPartOf(document: Uint8Array): JsonObject {
  return { sha256: encodeHex(sha256(document)), document: encodeBase64(document) }
}

/**
 * The record without members that cannot be verified: its `id` and, if it is `redacted`, its
 * `usage` and `withheld`. Missing parts are replaced by their hashes from the receipt. The
 * gateway's statement `erased` stays.
 */
function withoutContent({ id: _, ...record }: JsonObject): JsonObject {
  if (memberOf(record, 'redacted') !== true) return record
  const {
    request: _request,
    response: _response,
    redacted: _redacted,
    usage: _usage,
    withheld: _withheld,
    ...rest
  } = record
  const receipt = memberOf(record, 'receipt')
  const hashOf = (name: string): Json =>
    isJsonObject(receipt) ? (memberOf(receipt, name) ?? null) : null
  return {
    request_hash: hashOf('request_hash'),
    response_hash: hashOf('response_hash'),
    ...rest,
  }
}

export type RedactablePart = 'request' | 'response'

/**
 * Returns a copy of the bundle in which hashes replace the request, the response or both. The rest
 * stays verifiable: who signed, the receipt, the log, the anchor. A part that is already left out
 * stays left out. The hash is computed from the part itself, so the hash of an altered part does
 * not match the receipt.
 *
 * Does NOT hide: the times, the models and the provider, which the receipt states; a part that can
 * be guessed (its hash has no salt, so each guess can be tried); text that the other part repeats.
 *
 * @example
 * const bundle = parseEvidenceBundle(parseExactJson(bundleFile))
 * const shared = redactBundle(bundle, { request: true })
 * console.log('request' in shared.record) // false
 */
export function redactBundle(
  bundle: EvidenceBundle,
  parts: { readonly request?: boolean; readonly response?: boolean },
): EvidenceBundle {
  const { record } = bundle
  const { request, response } = ownMembers(parts)
  const withoutRequest = request === true ? redactRequest(record) : record
  if (response !== true) return { ...bundle, record: withoutRequest }
  const { events: _events, idempotent: _idempotent, ...rest } = bundle
  return { ...rest, record: redactResponse(withoutRequest) }
}

export function redactedParts(record: BundleRecord): readonly RedactablePart[] {
  return [
    ...('request' in record ? [] : ['request' as const]),
    ...('response' in record ? [] : ['response' as const]),
  ]
}

function redactRequest(record: BundleRecord): BundleRecord {
  if (!('request' in record)) return record
  const { request, ...rest } = record
  const { dialect } = record.receipt
  const { requestHash } = hashCompletion({ request, response: {}, dialect })
  const part: RequestPart = { request_hash: requestHash }
  return { ...part, ...rest }
}

function redactResponse(record: BundleRecord): BundleRecord {
  if (!('response' in record)) return record
  const { response, ...rest } = record
  const { dialect } = record.receipt
  const { responseHash } = hashCompletion({ request: {}, response, dialect })
  const part: ResponsePart = { response_hash: responseHash }
  return { ...part, ...rest }
}
