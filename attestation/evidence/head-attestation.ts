import { decodeBase64 } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { hasExactMembers, isJsonObject, type Json } from '../json/value.ts'
import { BUNDLE_DOCUMENT_BYTES_MAX } from './bundle.ts'
import { attempt } from './finding.ts'

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
 * The head attestation that attacker-controlled `json` is: exactly its members, each in its one form, hex in lower
 * case. Throws FormatError `invalid_head_attestation` naming the member.
 *
 * Does NOT prove anything: see verifyHeadAttestation.
 */
export function parseHeadAttestation(json: Json): HeadAttestation {
  if (!isJsonObject(json) || !hasExactMembers(json, MEMBERS)) throw invalid(`exactly ${MEMBERS.join(', ')}`)
  const { root, block_hash: blockHash, document } = json
  if (typeof root !== 'string' || !/^[0-9a-f]{64}$/.test(root)) throw invalid('root to be 32 bytes of hex')
  if (typeof blockHash !== 'string' || !/^0x[0-9a-f]{64}$/.test(blockHash))
    throw invalid('block_hash to be 0x and 32 bytes of hex')
  return {
    size: countOf(json.size, 'size'),
    root,
    block_number: countOf(json.block_number, 'block_number'),
    block_hash: blockHash,
    created_at: countOf(json.created_at, 'created_at'),
    document: documentOf(document),
  }
}

const MEMBERS = ['size', 'root', 'block_number', 'block_hash', 'created_at', 'document'] as const

const DOCUMENT_LENGTH_MAX = Math.ceil(BUNDLE_DOCUMENT_BYTES_MAX / 3) * 4

function documentOf(json: Json): string {
  const fault = invalid(`document to be standard base64 of 1 to ${BUNDLE_DOCUMENT_BYTES_MAX} bytes`)
  if (typeof json !== 'string' || json === '' || json.length > DOCUMENT_LENGTH_MAX) throw fault
  const bytes = attempt(() => decodeBase64(json))
  if ('fault' in bytes || bytes.value.length > BUNDLE_DOCUMENT_BYTES_MAX) throw fault
  return json
}

function countOf(json: Json, name: string): number {
  if (typeof json !== 'number' || !Number.isSafeInteger(json) || json < 0)
    throw invalid(`${name} to be a whole number from 0 to 2^53-1`)
  return json
}

function invalid(expectation: string): FormatError {
  return new FormatError('invalid_head_attestation', `head attestation: expected ${expectation}`)
}
