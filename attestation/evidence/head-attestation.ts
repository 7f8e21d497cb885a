import { encodeHex, encodeUtf8, HASH_BYTES, sha256 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import { formsOf } from '../json/forms.ts'
import { hasExactMembers, isJsonObject, type Json } from '../json/value.ts'
import { BUNDLE_DOCUMENT_BYTES_MAX } from './bundle-forms.ts'

const { base64Of, countOf, textOf } = formsOf('invalid_head_attestation', 'head attestation: ')

/** A head attestation as it is served with the heads of its log. */
export type HeadAttestation = {
  readonly size: number
  /** Hex without prefix. */
  readonly root: string
  /** Where the gateway says the block stands; the document names its hash alone. */
  readonly block_number: number
  /** 0x hex. */
  readonly block_hash: string
  /** The second of the document's timestamp, Unix seconds. */
  readonly created_at: number
  /** Attestation document, standard base64. */
  readonly document: string
}

/**
 * The head attestation that attacker-controlled `json` is: exactly its members, each in its one
 * form, hex in lower case. Throws FormatError `invalid_head_attestation` naming the member.
 *
 * Does NOT prove anything: see verifyHeadAttestation.
 */
export function parseHeadAttestation(json: Json): HeadAttestation {
  if (!isJsonObject(json) || !hasExactMembers(json, MEMBERS))
    throw new FormatError(
      'invalid_head_attestation',
      `head attestation: expected exactly ${MEMBERS.join(', ')}`,
    )
  const root = textOf(json.root, 'root', ROOT)
  const blockHash = textOf(json.block_hash, 'block_hash', BLOCK_HASH)
  return {
    size: countOf(json.size, 'size'),
    root,
    block_number: countOf(json.block_number, 'block_number'),
    block_hash: blockHash,
    created_at: countOf(json.created_at, 'created_at'),
    document: base64Of(json.document, 'document', BUNDLE_DOCUMENT_BYTES_MAX),
  }
}

const MEMBERS = ['size', 'root', 'block_number', 'block_hash', 'created_at', 'document'] as const
const ROOT = { form: /^[0-9a-f]{64}$/, expectation: '32 bytes of hex' }
const BLOCK_HASH = { form: /^0x[0-9a-f]{64}$/, expectation: '0x and 32 bytes of hex' }

/** What `format` is in the statement that a head attestation's `user_data` is the digest of. */
export const HEAD_ATTESTATION_FORMAT = 'affidavit-head-attestation'

/** What an enclave states of its log in a head attestation, beside the block's hash. */
export type HeadStatement = {
  /** Digest of the enclave's boot configuration, 32 bytes (digestBootConfiguration). */
  readonly configuration: Uint8Array
  /** The log: its notary's address, 0x and lower case. */
  readonly notary: string
  /** All leaves that the log has at that moment, whether or not the gateway has them. */
  readonly size: number
  /** Their Merkle root, 32 bytes. */
  readonly root: Uint8Array
}

/**
 * What `user_data` of a head attestation's document is, 32 bytes: SHA-256 of the canonical JSON of
 * the statement. It is no digest of a boot configuration, which has no member `format`: neither
 * document passes for the other. Throws FormatError `invalid_head_statement`.
 */
export function headAttestationUserData({
  configuration,
  notary,
  size,
  root,
}: HeadStatement): Uint8Array {
  if (configuration.length !== HASH_BYTES || root.length !== HASH_BYTES)
    throw invalidStatement(`a configuration and a root of ${HASH_BYTES} bytes`)
  if (!/^0x[0-9a-f]{40}$/.test(notary)) throw invalidStatement('an address in lower case')
  if (!Number.isSafeInteger(size) || size < 0) throw invalidStatement('a size from 0 to 2^53-1')
  const statement = {
    format: HEAD_ATTESTATION_FORMAT,
    version: 1,
    boot_configuration: encodeHex(configuration),
    notary,
    size,
    root: encodeHex(root),
  }
  return sha256(encodeUtf8(canonicalizeJson(statement)))
}

function invalidStatement(expectation: string): FormatError {
  return new FormatError('invalid_head_statement', `head statement: expected ${expectation}`)
}
