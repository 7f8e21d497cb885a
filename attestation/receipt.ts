import { HASH_BYTES } from './bytes.ts'
import {
  DIALECT_HEADERS,
  DIALECT_NAMES,
  type DialectName,
  isDialectName,
} from './dialects/dialect-names.ts'
import { formsOf } from './json/forms.ts'
import { isJsonObject, type Json, memberOf } from './json/value.ts'

const { countOf, hexOf, invalid, membersOf, objectOf, textOf } = formsOf('invalid_receipt')

/**
 * What the enclave states about one completion besides the five proof fields (formats.md, Receipt).
 * Enclaves make version 3. Older records have the other versions.
 */
export type Receipt = (ReceiptMembers & { readonly version: 1 }) | ReceiptV2 | ReceiptV3

export type ReceiptV2 = ReceiptMembers & StreamMembers & { readonly version: 2 }

export type ReceiptV3 = ReceiptMembers &
  StreamMembers & {
    readonly version: 3
    /** The owner of the credential that the provider received. */
    readonly credential: ReceiptCredential
    readonly dialect: DialectName
    /** The call's headers that are hashed, without the caller's demands. Empty for a chat call. */
    readonly headers: Readonly<Record<string, string>>
  }

export type ReceiptCredential = {
  /** The enclave checks this, unless the call is unencrypted and has no demand. */
  readonly from: 'caller' | 'operator' | 'none'
  /** True if the request demanded this credential (`affidavit.credential`). */
  readonly demanded: boolean
}

type StreamMembers = {
  /**
   * SHA-256 over the chunks that the enclave sent (hashChunks). Null for an answer without a
   * stream.
   */
  readonly stream_hash: string | null
  /** How often the enclave was asked for this request_hash recently, this time included. */
  readonly attempt: number
  /** True if request and answer were encrypted end to end. */
  readonly encrypted: boolean
}

type ReceiptMembers = {
  /** Index of the leaf in the notary's log. */
  readonly index: number
  readonly hash: string
  readonly request_hash: string
  readonly response_hash: string
  readonly forwarded_hash: string
  readonly received_hash: string
  readonly provider: {
    readonly name: string
    readonly origin: string
    readonly tls: ReceiptTls | null
  }
  readonly model: { readonly requested: string; readonly returned: string | null }
  readonly outcome: 'complete' | 'client_disconnected' | 'upstream_error'
  /** Unix milliseconds, by the enclave's clock. */
  readonly started_at: number
  readonly finished_at: number
}

/** The TLS key of the answer's sender. `subject` and `issuer` are one-line distinguished names. */
export type ReceiptTls = {
  readonly protocol: string
  readonly spki_sha256: string
  readonly subject: string
  readonly issuer: string
}

/**
 * Reads the receipt in `value`. It must have exactly the members of its version: hashes as 64
 * lower-case hex digits, counts and times as whole numbers from 0, `attempt` from 1, `tls` null
 * only with an http origin. Throws FormatError `invalid_receipt` naming the member. Does NOT prove
 * that an enclave made it: see verifyLogProof.
 */
export function parseReceipt(value: Json): Receipt {
  const version = isJsonObject(value) ? memberOf(value, 'version') : undefined
  if (version === 1)
    return { version: 1, ...parseMembers(membersOf(value, 'receipt', RECEIPT_MEMBERS)) }
  if (version !== 2 && version !== 3) throw invalid('version', 'the number 1, 2 or 3')
  const receipt = membersOf(value, 'receipt', [
    ...RECEIPT_V2_MEMBERS,
    ...(version === 3 ? RECEIPT_V3_MEMBERS : []),
  ])
  const { stream_hash: streamHash, encrypted } = receipt
  const attempt = countOf(receipt.attempt, 'attempt')
  if (attempt === 0) throw invalid('attempt', 'a whole number from 1')
  if (typeof encrypted !== 'boolean') throw invalid('encrypted', 'a boolean')
  const members = {
    ...parseMembers(receipt),
    stream_hash: streamHash === null ? null : hexOf(streamHash, 'stream_hash', HASH_BYTES),
    attempt,
    encrypted,
  }
  if (version === 2) return { version, ...members }
  const { dialect } = receipt
  if (!isDialectName(dialect)) throw invalid('dialect', `one of ${DIALECT_NAMES.join(', ')}`)
  const headers = parseHeaders(dialect, receipt.headers)
  return { version, ...members, credential: parseCredential(receipt.credential), dialect, headers }
}

function parseHeaders(dialect: DialectName, value: Json): ReceiptV3['headers'] {
  const names = DIALECT_HEADERS[dialect]
  const headers = Object.entries(objectOf(value, 'headers')).map(([name, text]) => {
    if (!names.includes(name)) throw invalid('headers', `an object of ${names.join(', ')}`)
    return [name, textOf(text, `headers.${name}`)] as const
  })
  return Object.fromEntries(headers)
}

/** Returns `chat` for receipts of versions 1 and 2. */
export function dialectOfReceipt(receipt: Receipt): DialectName {
  return receipt.version === 3 ? receipt.dialect : 'chat'
}

function parseCredential(value: Json): ReceiptCredential {
  const { from, demanded } = membersOf(value, 'credential', ['from', 'demanded'])
  if (from !== 'caller' && from !== 'operator' && from !== 'none')
    throw invalid('credential.from', 'one of caller, operator, none')
  if (typeof demanded !== 'boolean') throw invalid('credential.demanded', 'a boolean')
  return { from, demanded }
}

function parseMembers(receipt: Readonly<Record<keyof ReceiptMembers, Json>>): ReceiptMembers {
  return {
    index: countOf(receipt.index, 'index'),
    hash: hexOf(receipt.hash, 'hash', HASH_BYTES),
    request_hash: hexOf(receipt.request_hash, 'request_hash', HASH_BYTES),
    response_hash: hexOf(receipt.response_hash, 'response_hash', HASH_BYTES),
    forwarded_hash: hexOf(receipt.forwarded_hash, 'forwarded_hash', HASH_BYTES),
    received_hash: hexOf(receipt.received_hash, 'received_hash', HASH_BYTES),
    provider: parseProvider(receipt.provider),
    model: parseModel(receipt.model),
    outcome: parseOutcome(receipt.outcome),
    started_at: countOf(receipt.started_at, 'started_at'),
    finished_at: countOf(receipt.finished_at, 'finished_at'),
  }
}

const RECEIPT_MEMBERS = [
  'version',
  'index',
  'hash',
  'request_hash',
  'response_hash',
  'forwarded_hash',
  'received_hash',
  'provider',
  'model',
  'outcome',
  'started_at',
  'finished_at',
] as const

const RECEIPT_V2_MEMBERS = [...RECEIPT_MEMBERS, 'stream_hash', 'attempt', 'encrypted'] as const

const RECEIPT_V3_MEMBERS = ['credential', 'dialect', 'headers'] as const

/** The ways in which a completion can end. Only a `complete` answer is whole. */
export const OUTCOMES: readonly Receipt['outcome'][] = [
  'complete',
  'client_disconnected',
  'upstream_error',
]

function parseProvider(value: Json): Receipt['provider'] {
  const provider = membersOf(value, 'provider', ['name', 'origin', 'tls'])
  const origin = textOf(provider.origin, 'provider.origin')
  const tls = provider.tls === null ? null : parseTls(provider.tls)
  if (!origin.startsWith(tls === null ? 'http://' : 'https://'))
    throw invalid('provider.tls', 'null for an http origin and an object for an https origin')
  return { name: textOf(provider.name, 'provider.name'), origin, tls }
}

function parseTls(value: Json): ReceiptTls {
  const tls = membersOf(value, 'provider.tls', ['protocol', 'spki_sha256', 'subject', 'issuer'])
  return {
    protocol: textOf(tls.protocol, 'provider.tls.protocol'),
    spki_sha256: hexOf(tls.spki_sha256, 'provider.tls.spki_sha256', HASH_BYTES),
    subject: textOf(tls.subject, 'provider.tls.subject'),
    issuer: textOf(tls.issuer, 'provider.tls.issuer'),
  }
}

function parseModel(value: Json): Receipt['model'] {
  const model = membersOf(value, 'model', ['requested', 'returned'])
  return {
    requested: textOf(model.requested, 'model.requested'),
    returned: model.returned === null ? null : textOf(model.returned, 'model.returned'),
  }
}

function parseOutcome(value: Json): Receipt['outcome'] {
  const outcome = OUTCOMES.find((known) => known === value)
  if (outcome === undefined) throw invalid('outcome', `one of ${OUTCOMES.join(', ')}`)
  return outcome
}
