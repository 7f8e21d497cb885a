import {
  concatBytes,
  decodeBase64,
  decodeHex,
  encodeBase64,
  encodeHex,
  encodeUtf8,
  sha256,
} from '../../bytes.ts'
import { canonicalizeJson } from '../../json/canonical.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import type { Json } from '../../json/value.ts'
import { parsedAs, refuseEvidence } from './evidence-codes.ts'

/** Each kind is a format in which providers serve their attestation. */
export const PROVIDER_KINDS = ['tinfoil', 'dstack', 'aci', 'nitro'] as const
export type ProviderKind = (typeof PROVIDER_KINDS)[number]

export const EVIDENCE_PATHS: Readonly<Record<ProviderKind, string>> = {
  tinfoil: '/.well-known/tinfoil-attestation',
  dstack: '/v1/attestation/report',
  aci: '/v1/aci/attestation',
  nitro: '/v1/attestation',
}

/** An answer to a GET request. Nothing proves that it came from the host of `url`. */
export type KeptResponse = {
  /** Absolute, https, as `URL` prints it. */
  readonly url: string
  readonly status: number
  /** Names are in lower case. A gateway need not keep headers that no check reads. */
  readonly headers: ReadonlyMap<string, string>
  readonly body: Uint8Array<ArrayBuffer>
}

/** A nonce was computed from this block. */
export type NonceBlock = {
  readonly chainId: number
  readonly number: number
  /** 32 bytes. */
  readonly hash: Uint8Array
}

/**
 * A chain's block with the number of a nonce's block, as the caller read it. It is as trustworthy
 * as the endpoint of the chain.
 */
export type LookedUpBlock = {
  readonly chainId: number
  /** Null: the chain has no block with this number. */
  readonly block: {
    /** 0x and 64 hex digits. */
    readonly hash: string
    /** Unix seconds. */
    readonly timestamp: number
  } | null
}

/** The answers of a provider for a nonce, and the other data that the checks need. */
export type ProviderEvidence = {
  readonly kind: ProviderKind
  /** https. */
  readonly origin: string
  /** 32 bytes: see providerNonce. */
  readonly nonce: Uint8Array
  /** Unix milliseconds by the clock of the gateway. */
  readonly fetchedAtMs: number
  /** Null if the nonce is random. */
  readonly block: NonceBlock | null
  /** All URLs are at `origin`. */
  readonly responses: readonly KeptResponse[]
  /** Signed data from the makers of hardware and code. The hosts of the URLs are not checked. */
  readonly collateral: readonly KeptResponse[]
}

/** Real evidence of a machine with eight GPUs has about 300,000 bytes. */
export const PROVIDER_EVIDENCE_BYTES_MAX = 4 * 1024 * 1024

const RESPONSES_MAX = 8
const COLLATERAL_MAX = 32
const HEADERS_MAX = 16
const HEADER_CHARACTERS_MAX = 32_768
const URL_CHARACTERS_MAX = 2_048

/**
 * Parses an attacker-controlled provider evidence: exactly the members of formats.md, in their
 * canonical form. Verifies nothing. Throws ProviderEvidenceError `evidence_size` or
 * `evidence_malformed`.
 */
export function parseProviderEvidence(bytes: Uint8Array): ProviderEvidence {
  if (bytes.length > PROVIDER_EVIDENCE_BYTES_MAX)
    throw refuseEvidence('evidence_size', `expected at most ${PROVIDER_EVIDENCE_BYTES_MAX} bytes`)
  return parsedAs('evidence_malformed', () => readEvidence(parseExactJson(bytes)))
}

/** Returns canonical JSON. The SHA-256 of these bytes is the digest of the evidence. */
export function writeProviderEvidence(evidence: ProviderEvidence): Uint8Array {
  const { kind, origin, nonce, fetchedAtMs, block } = evidence
  return encodeUtf8(
    canonicalizeJson({
      version: 1,
      kind,
      origin,
      nonce: encodeHex(nonce),
      fetched_at: fetchedAtMs,
      block: block && {
        chain_id: block.chainId,
        number: block.number,
        hash: `0x${encodeHex(block.hash)}`,
      },
      responses: evidence.responses.map(writeResponse),
      collateral: evidence.collateral.map(writeResponse),
    }),
  )
}

/** SHA-256 of a block's hash (32 bytes) and of the UTF-8 bytes of the origin. */
export function providerNonce(blockHash: Uint8Array, origin: string): Uint8Array {
  return sha256(concatBytes(blockHash, encodeUtf8(origin)))
}

function writeResponse({ url, status, headers, body }: KeptResponse): Json {
  return { url, status, headers: Object.fromEntries(headers), body: encodeBase64(body) }
}

const { arrayOf, countOf, hexOf, invalid, membersOf, objectOf, textOf } =
  formsOf('evidence_malformed')

const EVIDENCE_MEMBERS = [
  'version',
  'kind',
  'origin',
  'nonce',
  'fetched_at',
  'block',
  'responses',
  'collateral',
] as const

function readEvidence(json: Json): ProviderEvidence {
  const members = membersOf(json, 'the evidence', EVIDENCE_MEMBERS)
  if (members.version !== 1) throw invalid('version', '1')
  const kind = PROVIDER_KINDS.find((one) => one === members.kind)
  if (kind === undefined) throw invalid('kind', PROVIDER_KINDS.join(', '))
  const origin = originOfHttps(members.origin)
  const responses = readResponses(members.responses, 'responses', RESPONSES_MAX)
  if (responses.some(({ url }) => new URL(url).origin !== origin))
    throw invalid('each url of responses', 'at the origin')
  return {
    kind,
    origin,
    nonce: decodeHex(hexOf(members.nonce, 'nonce', 32)),
    fetchedAtMs: countOf(members.fetched_at, 'fetched_at'),
    block: members.block === null ? null : readBlock(members.block),
    responses,
    collateral: readResponses(members.collateral, 'collateral', COLLATERAL_MAX),
  }
}

function originOfHttps(json: Json): string {
  const text = urlOf(json, 'origin', (url) => url.origin)
  if (!text.startsWith('https://')) throw invalid('origin', 'an https origin')
  return text
}

/** The text must be exactly what `print` returns for the URL. */
function urlOf(json: Json, name: string, print: (url: URL) => string): string {
  const text = textOf(json, name)
  const isUrl = text.length <= URL_CHARACTERS_MAX && URL.canParse(text)
  if (!isUrl || print(new URL(text)) !== text)
    throw invalid(name, `a URL of at most ${URL_CHARACTERS_MAX} characters in its normal form`)
  return text
}

function readBlock(json: Json): NonceBlock {
  const { chain_id, number, hash } = membersOf(json, 'block', ['chain_id', 'number', 'hash'])
  const text = textOf(hash, 'block.hash')
  if (!text.startsWith('0x')) throw invalid('block.hash', '0x and 64 hex digits')
  return {
    chainId: countOf(chain_id, 'block.chain_id'),
    number: countOf(number, 'block.number'),
    hash: decodeHex(hexOf(text.slice(2), 'block.hash', 32)),
  }
}

function readResponses(json: Json, name: string, max: number): readonly KeptResponse[] {
  return arrayOf(json, name, { min: 0, max }).map((item, index) => {
    const where = `${name}.${index}`
    const members = membersOf(item, where, ['url', 'status', 'headers', 'body'])
    const url = urlOf(members.url, `${where}.url`, ({ href }) => href)
    if (!url.startsWith('https://')) throw invalid(`${where}.url`, 'an https URL')
    return {
      url,
      status: countOf(members.status, `${where}.status`),
      headers: readHeaders(members.headers, `${where}.headers`),
      body: new Uint8Array(decodeBase64(textOf(members.body, `${where}.body`))),
    }
  })
}

function readHeaders(json: Json, name: string): ReadonlyMap<string, string> {
  const entries = Object.entries(objectOf(json, name))
  if (entries.length > HEADERS_MAX) throw invalid(name, `at most ${HEADERS_MAX} headers`)
  return new Map(
    entries.map(([header, value]) => {
      const isHeader = /^[a-z0-9-]{1,64}$/.test(header)
      if (!isHeader || typeof value !== 'string' || value.length > HEADER_CHARACTERS_MAX)
        throw invalid(name, 'lower-case names, each with a text')
      return [header, value]
    }),
  )
}
