import { concatBytes } from '../bytes.ts'
import { AttestationError } from './attestation-error.ts'
import { CborError, type CborFault, decodeCbor } from './cbor.ts'
import { type EcdsaKey, isSignatureInRange, P384, verifyEcdsa } from './ecdsa.ts'

/** Largest document, bytes. AWS's largest document (all three fields full) has about 7,600. */
export const DOCUMENT_BYTES_MAX = 24_576
const PAYLOAD_BYTES_MAX = 16_384
/** r || s of ECDSA over P-384. */
const SIGNATURE_BYTES = 96

/** The parts of a COSE_Sign1 (RFC 9052 section 4.2), exactly as received. */
type CoseSign1 = {
  readonly protectedHeader: Uint8Array<ArrayBuffer>
  readonly payload: Uint8Array<ArrayBuffer>
  readonly signature: Uint8Array<ArrayBuffer>
}

/**
 * Decodes the COSE_Sign1 in attacker-controlled `bytes`: untagged or tagged 18, strictly encoded,
 * ES384 only, no unprotected header, no bytes after it (rules 1 to 6). Does not verify the
 * signature. The parts are copies. Throws AttestationError.
 */
export function decodeCose(bytes: Uint8Array): CoseSign1 {
  if (bytes.length > DOCUMENT_BYTES_MAX) {
    throw new AttestationError(
      'document_too_large',
      `expected at most ${DOCUMENT_BYTES_MAX} bytes, got ${bytes.length}`,
    )
  }
  const own = new Uint8Array(bytes)
  const start = own[0] === TAG_18 ? 1 : 0
  const { value: parts, end } = decodeEnvelope(own, start)
  if (!Array.isArray(parts) || parts.length !== 4) {
    throw new AttestationError('envelope_shape', 'expected an array of exactly four items')
  }
  if (end !== own.length) {
    throw new AttestationError(
      'envelope_trailing_bytes',
      `${own.length - end} bytes after the envelope`,
    )
  }
  const [protectedHeader, unprotectedHeader, payload, signature]: unknown[] = parts
  const header = protectedHeaderOf(protectedHeader)
  checkUnprotectedHeader(unprotectedHeader)
  return {
    protectedHeader: header,
    payload: partOf(payload, { name: 'payload', bytesMin: 1, bytesMax: PAYLOAD_BYTES_MAX }),
    signature: partOf(signature, {
      name: 'signature',
      bytesMin: SIGNATURE_BYTES,
      bytesMax: SIGNATURE_BYTES,
    }),
  }
}

/** The error for a fault in strict CBOR that no other rule covers. */
export function refuseCbor(error: CborError, where: string): AttestationError {
  return new AttestationError(CODE_OF_FAULT[error.fault], `${where}: ${error.message}`)
}

/** Tag 18 (COSE_Sign1) in its minimal, single-byte form. */
const TAG_18 = 0xd2

const ALGORITHM_LABEL = 1
const CRIT_LABEL = 2
const ES384 = -35

const CODE_OF_FAULT = {
  truncated: 'cbor_truncated',
  not_minimal: 'cbor_not_minimal',
  reserved: 'cbor_reserved',
  tag: 'cbor_tag',
  float: 'cbor_float',
  simple: 'cbor_simple',
  chunked_string: 'cbor_chunked_string',
  indefinite: 'cbor_indefinite',
  stray_break: 'cbor_stray_break',
  too_deep: 'cbor_too_deep',
  key_type: 'cbor_key_type',
  duplicate_key: 'cbor_duplicate_key',
  invalid_utf8: 'cbor_invalid_utf8',
} as const satisfies Readonly<Record<CborFault, string>>

function decodeEnvelope(bytes: Uint8Array, offset: number): ReturnType<typeof decodeCbor> {
  try {
    return decodeCbor(bytes, { offset })
  } catch (error) {
    if (!(error instanceof CborError)) throw error
    if (error.fault === 'tag' && error.offset <= 1 && error.path.length === 0) {
      throw new AttestationError('envelope_tag', 'expected no tag, or tag 18 once')
    }
    throw refuseCbor(error, 'envelope')
  }
}

function protectedHeaderOf(value: unknown): Uint8Array<ArrayBuffer> {
  if (!(value instanceof Uint8Array)) {
    throw new AttestationError('protected_header_malformed', 'expected a byte string')
  }
  const header = decodeHeader(value)
  if (!(header instanceof Map)) {
    throw new AttestationError('protected_header_malformed', 'expected one map in the byte string')
  }
  if (header.has(CRIT_LABEL)) {
    throw new AttestationError(
      'protected_header_crit',
      'expected no crit, because none is understood',
    )
  }
  if (header.get(ALGORITHM_LABEL) !== ES384) {
    throw new AttestationError('protected_header_algorithm', `expected algorithm ${ES384} (ES384)`)
  }
  if (header.size !== 1) {
    throw new AttestationError(
      'protected_header_unexpected_key',
      'expected the algorithm and nothing else',
    )
  }
  return new Uint8Array(value)
}

/** Null if the byte string does not hold exactly one item. */
function decodeHeader(bytes: Uint8Array): unknown {
  try {
    if (bytes.length === 0) return null
    const { value, end } = decodeCbor(bytes)
    return end === bytes.length ? value : null
  } catch (error) {
    if (!(error instanceof CborError)) throw error
    if (error.fault === 'duplicate_key' && error.path.length === 0) {
      throw new AttestationError('protected_header_duplicate_key', 'expected each label once')
    }
    throw refuseCbor(error, 'protected header')
  }
}

function checkUnprotectedHeader(value: unknown): void {
  if (!(value instanceof Map)) {
    throw new AttestationError('unprotected_header_malformed', 'expected a map')
  }
  if (value.size !== 0) {
    throw new AttestationError('unprotected_header_not_empty', 'expected no unsigned label')
  }
}

type PartBounds = {
  readonly name: 'payload' | 'signature'
  readonly bytesMin: number
  readonly bytesMax: number
}

function partOf(value: unknown, { name, bytesMin, bytesMax }: PartBounds): Uint8Array<ArrayBuffer> {
  if (!(value instanceof Uint8Array)) {
    throw new AttestationError(`${name}_malformed`, `expected ${name} to be a byte string`)
  }
  if (value.length < bytesMin || value.length > bytesMax) {
    throw new AttestationError(
      `${name}_size`,
      `expected ${name} of ${bytesMin} to ${bytesMax} bytes, got ${value.length}`,
    )
  }
  return new Uint8Array(value)
}

/**
 * Verifies that the holder of `key` signed the received protected header and payload (rule 20; RFC
 * 9052 section 4.4). Does not prove who holds the key: verifyChain does. Throws AttestationError.
 */
export async function verifyCoseSignature(cose: CoseSign1, key: EcdsaKey): Promise<void> {
  if (!isSignatureInRange(cose.signature, P384)) {
    throw new AttestationError('signature_out_of_range', 'expected r and s from 1 to n-1')
  }
  const holds = await verifyEcdsa({ key, signature: cose.signature, data: sigStructure(cose) })
  if (!holds)
    throw new AttestationError('signature_invalid', "expected a signature by the leaf's key")
}

/**
 * The signed bytes (RFC 9052 section 4.4): Sig_structure ["Signature1", protected, h'', payload],
 * with the header and payload as received, each below 64 KiB.
 */
export function sigStructure({
  protectedHeader,
  payload,
}: {
  readonly protectedHeader: Uint8Array
  readonly payload: Uint8Array
}): Uint8Array<ArrayBuffer> {
  const parts = [
    SIGNATURE1,
    byteStringHead(protectedHeader.length),
    protectedHeader,
    EMPTY_BYTE_STRING,
    byteStringHead(payload.length),
    payload,
  ]
  return new Uint8Array(concatBytes(...parts))
}

/** The head of an array of four, then the text "Signature1" with its head. */
const SIGNATURE1 = Uint8Array.from([0x84, 0x6a, ...new TextEncoder().encode('Signature1')])
const EMPTY_BYTE_STRING = Uint8Array.of(0x40)

/** Minimal head of a byte string below 64 KiB. */
function byteStringHead(length: number): Uint8Array {
  if (length < 24) return Uint8Array.of(0x40 + length)
  if (length < 0x100) return Uint8Array.of(0x58, length)
  return Uint8Array.of(0x59, length >> 8, length & 0xff)
}
