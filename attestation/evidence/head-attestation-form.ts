import { FormatError } from '../errors.ts'
import { formsOf } from '../json/forms.ts'
import { hasExactMembers, isJsonObject, type Json } from '../json/value.ts'
import { BUNDLE_DOCUMENT_BYTES_MAX, base64FormOf } from './bundle-forms.ts'

const { countOf, invalid, textOf } = formsOf('invalid_head_attestation', 'head attestation: ')
const base64Of = base64FormOf(invalid)

/** A head attestation as the gateway serves it. */
export type HeadAttestation = {
  readonly size: number
  /** Hex without prefix. */
  readonly root: string
  /** Stated by the gateway. The document has only the block's hash. */
  readonly block_number: number
  /** 0x hex. */
  readonly block_hash: string
  /** The time of the document in whole seconds, Unix time. */
  readonly created_at: number
  /** Attestation document, standard base64. */
  readonly document: string
}

/**
 * Reads the head attestation in attacker-controlled `json`. It must have exactly its members, each
 * in its canonical form, hex in lower case. Throws FormatError `invalid_head_attestation` naming
 * the member.
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
