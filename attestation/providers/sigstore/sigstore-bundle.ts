import { decodeBase64, HASH_BYTES } from '../../bytes.ts'
import { formsOf } from '../../json/forms.ts'
import { parseExactJson } from '../../json/parse-strict.ts'
import { type Json, memberAt } from '../../json/value.ts'
import { orRefuse } from '../provider-error.ts'
import { refuseBundle, type SigstoreCode } from './sigstore-codes.ts'

/** An entry of a log, with the log's promise and proof of inclusion (Rekor, API version 1). */
export type LogEntry = {
  readonly kind: string
  readonly version: string
  /** SHA-256 of the log's key. */
  readonly logId: Uint8Array
  readonly logIndex: number
  /** Unix seconds. */
  readonly integratedTime: number
  /** DER of ECDSA-Sig-Value. */
  readonly promise: Uint8Array<ArrayBuffer>
  /** The entry (JSON): base64 in `bodyText`, bytes in `body`. */
  readonly bodyText: string
  readonly body: Uint8Array
  readonly proof: {
    readonly index: number
    readonly size: number
    readonly root: Uint8Array
    readonly path: readonly Uint8Array[]
    readonly checkpoint: string
  }
}

/** All parts are only claimed until they are verified. */
export type SigstoreBundle = {
  /** DER. */
  readonly certificate: Uint8Array<ArrayBuffer>
  readonly entry: LogEntry
  readonly payloadType: string
  readonly payload: Uint8Array
  /** DER of ECDSA-Sig-Value. */
  readonly signature: Uint8Array<ArrayBuffer>
}

const HASHES_MAX = 64
/** The largest text, an entry with its certificate, has about 5,000 characters. */
const TEXT_CHARACTERS_MAX = 262_144

/**
 * Parses an attacker-controlled Sigstore bundle (media type
 * `application/vnd.dev.sigstore.bundle.v0.3+json`) of a DSSE envelope with one signature and one
 * log entry. Members that no check reads are ignored. Throws ProviderEvidenceError.
 */
export function parseSigstoreBundle(json: Json): SigstoreBundle {
  return orRefuse(refuseBundle, 'bundle_malformed', () => {
    const at = (...path: readonly string[]) => memberAt(json, ...path)
    if (at('mediaType') !== MEDIA_TYPE) throw invalid('mediaType', MEDIA_TYPE)
    const entries = arrayOf(at('verificationMaterial', 'tlogEntries'), 'tlogEntries')
    const signatures = arrayOf(at('dsseEnvelope', 'signatures'), 'signatures')
    const [entry] = entries
    const [signature] = signatures
    if (entry === undefined || entries.length > 1 || signatures.length !== 1)
      throw refuseBundle('bundle_entries', 'expected one log entry and one signature')
    return {
      certificate: bytesOf(at('verificationMaterial', 'certificate', 'rawBytes'), 'certificate'),
      entry: readEntry(entry),
      payloadType: textOf(at('dsseEnvelope', 'payloadType'), 'payloadType'),
      payload: bytesOf(at('dsseEnvelope', 'payload'), 'payload'),
      signature: bytesOf(memberAt(signature, 'sig'), 'sig'),
    }
  })
}

/** The bytes are attacker-controlled. Throws ProviderEvidenceError with `code`. */
export function readBundleJson(bytes: Uint8Array, code: SigstoreCode): Json {
  return orRefuse(refuseBundle, code, () => parseExactJson(bytes))
}

const MEDIA_TYPE = 'application/vnd.dev.sigstore.bundle.v0.3+json'

const { arrayOf, invalid, textOf } = formsOf('bundle_malformed')

function readEntry(json: Json): LogEntry {
  const at = (...path: readonly string[]) => memberAt(json, ...path)
  const bodyText = textOf(at('canonicalizedBody'), 'canonicalizedBody')
  const hashes = arrayOf(at('inclusionProof', 'hashes'), 'hashes', { min: 0, max: HASHES_MAX })
  return {
    kind: textOf(at('kindVersion', 'kind'), 'kind'),
    version: textOf(at('kindVersion', 'version'), 'version'),
    logId: hashOf(at('logId', 'keyId'), 'keyId'),
    logIndex: numberOf(at('logIndex'), 'logIndex'),
    integratedTime: numberOf(at('integratedTime'), 'integratedTime'),
    promise: bytesOf(at('inclusionPromise', 'signedEntryTimestamp'), 'signedEntryTimestamp'),
    bodyText,
    body: bytesOf(bodyText, 'canonicalizedBody'),
    proof: {
      index: numberOf(at('inclusionProof', 'logIndex'), 'logIndex'),
      size: numberOf(at('inclusionProof', 'treeSize'), 'treeSize'),
      root: hashOf(at('inclusionProof', 'rootHash'), 'rootHash'),
      path: hashes.map((hash) => hashOf(hash, 'hashes')),
      checkpoint: textOf(at('inclusionProof', 'checkpoint', 'envelope'), 'checkpoint'),
    },
  }
}

function bytesOf(json: Json | undefined, name: string): Uint8Array<ArrayBuffer> {
  const text = textOf(json, name)
  if (text.length > TEXT_CHARACTERS_MAX)
    throw invalid(name, `at most ${TEXT_CHARACTERS_MAX} characters`)
  return new Uint8Array(decodeBase64(text))
}

function hashOf(json: Json | undefined, name: string): Uint8Array {
  const bytes = bytesOf(json, name)
  if (bytes.length !== HASH_BYTES) throw invalid(name, `${HASH_BYTES} bytes in base64`)
  return bytes
}

/** Protocol Buffers write 64-bit numbers as strings in JSON. */
function numberOf(json: Json | undefined, name: string): number {
  const text = textOf(json, name)
  const value = /^(?:0|[1-9][0-9]{0,15})$/.test(text) ? Number(text) : Number.NaN
  if (!Number.isSafeInteger(value)) throw invalid(name, 'a whole number from 0 to 2^53-1, as text')
  return value
}
