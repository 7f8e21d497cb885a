import { HASH_BYTES } from './bytes.ts'
import {
  DIALECT_HEADERS,
  DIALECT_NAMES,
  type DialectName,
  isDialectName,
} from './dialects/dialect-names.ts'
import { formsOf } from './json/forms.ts'
import type { Json } from './json/value.ts'

const { countOf, hexOf, invalid, membersOf, objectOf, textOf } = formsOf('invalid_receipt')

/**
 * What the enclave states about one completion besides the five proof fields (formats.md, Receipt).
 */
export type Receipt = {
  readonly version: 1
  /** Index of the leaf in the notary's log. */
  readonly index: number
  readonly hash: string
  readonly request_hash: string
  readonly response_hash: string
  readonly forwarded_hash: string
  readonly received_hash: string
  /**
   * SHA-256 over the chunks that the enclave sent (hashChunks). Null for an answer without a
   * stream.
   */
  readonly stream_hash: string | null
  readonly dialect: DialectName
  /** The call's headers that are hashed, without the caller's demands. Empty for a chat call. */
  readonly headers: Readonly<Record<string, string>>
  readonly provider: {
    readonly name: string
    readonly origin: string
    readonly tls: ReceiptTls | null
  }
  readonly model: { readonly requested: string; readonly returned: string | null }
  /** The owner of the credential that the provider received. */
  readonly credential: ReceiptCredential
  readonly outcome: 'complete' | 'client_disconnected' | 'upstream_error'
  /** How often the enclave was asked for this request_hash recently, this time included. */
  readonly attempt: number
  /** True if request and answer were encrypted end to end. */
  readonly encrypted: boolean
  /** Unix milliseconds, by the enclave's clock. */
  readonly started_at: number
  readonly finished_at: number
}

export type ReceiptCredential = {
  /** The enclave checks this, unless the call is unencrypted and has no demand. */
  readonly from: 'caller' | 'operator' | 'none'
  /** True if the request demanded this credential (`affidavit.credential`). */
  readonly demanded: boolean
}

/** The TLS key of the answer's sender. `subject` and `issuer` are one-line distinguished names. */
export type ReceiptTls = {
  readonly protocol: string
  readonly spki_sha256: string
  readonly subject: string
  readonly issuer: string
}

/**
 * Reads the receipt in `value`. It must have exactly the members of a receipt: hashes as 64
 * lower-case hex digits, counts and times as whole numbers from 0, `attempt` from 1, `tls` null
 * only with an http origin. Throws FormatError `invalid_receipt` naming the member. Does NOT prove
 * that an enclave made it: see verifyLogProof.
 */
export function parseReceipt(value: Json): Receipt {
  const receipt = membersOf(value, 'receipt', RECEIPT_MEMBERS)
  if (receipt.version !== 1) throw invalid('version', 'the number 1')
  const { stream_hash: streamHash, dialect, encrypted } = receipt
  const attempt = countOf(receipt.attempt, 'attempt')
  if (attempt === 0) throw invalid('attempt', 'a whole number from 1')
  if (typeof encrypted !== 'boolean') throw invalid('encrypted', 'a boolean')
  if (!isDialectName(dialect)) throw invalid('dialect', `one of ${DIALECT_NAMES.join(', ')}`)
  return {
    version: 1,
    index: countOf(receipt.index, 'index'),
    hash: hexOf(receipt.hash, 'hash', HASH_BYTES),
    request_hash: hexOf(receipt.request_hash, 'request_hash', HASH_BYTES),
    response_hash: hexOf(receipt.response_hash, 'response_hash', HASH_BYTES),
    forwarded_hash: hexOf(receipt.forwarded_hash, 'forwarded_hash', HASH_BYTES),
    received_hash: hexOf(receipt.received_hash, 'received_hash', HASH_BYTES),
    stream_hash: streamHash === null ? null : hexOf(streamHash, 'stream_hash', HASH_BYTES),
    dialect,
    headers: parseHeaders(dialect, receipt.headers),
    provider: parseProvider(receipt.provider),
    model: parseModel(receipt.model),
    credential: parseCredential(receipt.credential),
    outcome: parseOutcome(receipt.outcome),
    attempt,
    encrypted,
    started_at: countOf(receipt.started_at, 'started_at'),
    finished_at: countOf(receipt.finished_at, 'finished_at'),
  }
}

function parseHeaders(dialect: DialectName, value: Json): Receipt['headers'] {
  const names = DIALECT_HEADERS[dialect]
  const headers = Object.entries(objectOf(value, 'headers')).map(([name, text]) => {
    if (!names.includes(name)) throw invalid('headers', `an object of ${names.join(', ')}`)
    return [name, textOf(text, `headers.${name}`)] as const
  })
  return Object.fromEntries(headers)
}

function parseCredential(value: Json): ReceiptCredential {
  const { from, demanded } = membersOf(value, 'credential', ['from', 'demanded'])
  if (from !== 'caller' && from !== 'operator' && from !== 'none')
    throw invalid('credential.from', 'one of caller, operator, none')
  if (typeof demanded !== 'boolean') throw invalid('credential.demanded', 'a boolean')
  return { from, demanded }
}

const RECEIPT_MEMBERS = [
  'version',
  'index',
  'hash',
  'request_hash',
  'response_hash',
  'forwarded_hash',
  'received_hash',
  'stream_hash',
  'dialect',
  'headers',
  'provider',
  'model',
  'credential',
  'outcome',
  'attempt',
  'encrypted',
  'started_at',
  'finished_at',
] as const

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
