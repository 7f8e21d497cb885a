import { refuseGpu } from './gpu-rules.ts'

/** Evidence of a GPU has about 4,300 bytes. */
const SPDM_EVIDENCE_BYTES_MAX = 65_536
/** SPDM 1.1: GET_MEASUREMENTS (all blocks, signed) and MEASUREMENTS. */
const REQUEST_HEAD = [0x11, 0xe0, 0x01, 0xff]
const RESPONSE_HEAD = [0x11, 0x60, 0x00, 0x00]
const NONCE_BYTES = 32
/** r || s of ECDSA over P-384. */
const SIGNATURE_BYTES = 96
const DIGEST_BYTES = 48
/** Index, specification, size; type and length of the digest; the digest. */
const BLOCK_BYTES = 7 + DIGEST_BYTES
const DMTF = 1

const OPAQUE_TYPES = { driver: 3, vbios: 6, firmwareId: 20 } as const

/** All fields are only claimed until chain and signature are verified. */
export type SpdmEvidence = {
  /** The nonce of the request. The caller chose it. */
  readonly nonce: Uint8Array
  readonly slot: number
  /** Digests of 48 bytes by index from 1. Only NVIDIA knows the digests of good firmware. */
  readonly measurements: ReadonlyMap<number, Uint8Array>
  /** Such as `590.12`. Null for switches. */
  readonly driver: string | null
  /** The raw bytes of the VBIOS version. Null if the evidence has no such field. */
  readonly vbios: Uint8Array | null
  /** The device's root of trust runs firmware with this digest. Null for switches. */
  readonly firmwareId: Uint8Array | null
  readonly signed: Uint8Array<ArrayBuffer>
  /** r || s, big-endian. */
  readonly signature: Uint8Array<ArrayBuffer>
}

/**
 * Decodes attacker-controlled evidence: an SPDM request and its response (rules 1 to 4; DSP0274
 * GET_MEASUREMENTS, MEASUREMENTS). The bytes are copied. Throws ProviderEvidenceError.
 */
export function decodeSpdmEvidence(bytes: Uint8Array): SpdmEvidence {
  if (bytes.length > SPDM_EVIDENCE_BYTES_MAX)
    throw refuseGpu('evidence_size', `expected at most ${SPDM_EVIDENCE_BYTES_MAX} bytes`)
  const reader = createReader(new Uint8Array(bytes))
  if (!startsWith(reader.take(REQUEST_HEAD.length), REQUEST_HEAD))
    throw refuseGpu('spdm_request', 'expected a request for all measurements, signed')
  const nonce = reader.take(NONCE_BYTES)
  const slot = reader.number(1)
  if (slot > 7) throw refuseGpu('spdm_request', 'expected a slot from 0 to 7')
  if (!startsWith(reader.take(RESPONSE_HEAD.length), RESPONSE_HEAD))
    throw refuseGpu('spdm_response', 'expected a response with measurements')
  const count = reader.number(1)
  if (reader.number(3) !== count * BLOCK_BYTES)
    throw refuseGpu('measurement_record', `expected ${BLOCK_BYTES} bytes for each measurement`)
  const measurements = new Map<number, Uint8Array>()
  for (let index = 0; index < count; index++) addBlock(measurements, reader)
  reader.take(NONCE_BYTES)
  const opaque = decodeOpaque(reader.take(reader.number(2)))
  const signedBytes = reader.offset
  const signature = reader.take(SIGNATURE_BYTES)
  if (reader.offset !== bytes.length)
    throw refuseGpu('evidence_size', 'expected nothing after the signature')
  return {
    nonce,
    slot,
    measurements,
    driver: driverOf(opaque.get(OPAQUE_TYPES.driver)),
    vbios: opaque.get(OPAQUE_TYPES.vbios) ?? null,
    firmwareId: firmwareIdOf(opaque.get(OPAQUE_TYPES.firmwareId)),
    signed: new Uint8Array(bytes.subarray(0, signedBytes)),
    signature,
  }
}

/** Numbers are little-endian. */
type FieldReader = {
  readonly offset: number
  take(length: number): Uint8Array<ArrayBuffer>
  number(bytes: 1 | 2 | 3): number
}

function createReader(bytes: Uint8Array<ArrayBuffer>): FieldReader {
  let offset = 0
  const take = (length: number) => {
    if (offset + length > bytes.length)
      throw refuseGpu('evidence_truncated', `expected ${length} bytes at byte ${offset}`)
    offset += length
    return bytes.slice(offset - length, offset)
  }
  return {
    get offset() {
      return offset
    },
    take,
    number: (length) => take(length).reduceRight((value, byte) => value * 256 + byte, 0),
  }
}

function startsWith(bytes: Uint8Array, head: readonly number[]): boolean {
  return head.every((byte, index) => bytes[index] === byte)
}

/** Reads the next block: DMTF's form, a SHA-384 digest, and the next index (from 1). */
function addBlock(measurements: Map<number, Uint8Array>, reader: FieldReader): void {
  const [index, specification] = [reader.number(1), reader.number(1)]
  const size = reader.number(2)
  reader.number(1)
  const length = reader.number(2)
  if (
    index !== measurements.size + 1 ||
    specification !== DMTF ||
    size !== DIGEST_BYTES + 3 ||
    length !== DIGEST_BYTES
  )
    throw refuseGpu('measurement_block', `expected block ${measurements.size + 1} with a digest`)
  measurements.set(index, reader.take(DIGEST_BYTES))
}

/** A field has a type, a length and data. Each type occurs once. */
function decodeOpaque(bytes: Uint8Array<ArrayBuffer>): ReadonlyMap<number, Uint8Array> {
  const fields = new Map<number, Uint8Array>()
  const view = new DataView(bytes.buffer)
  let offset = 0
  while (offset < bytes.length) {
    const start = offset + 4
    const end = start <= bytes.length ? start + view.getUint16(offset + 2, true) : start
    if (end > bytes.length) throw refuseGpu('opaque_data', 'expected whole opaque fields')
    const type = view.getUint16(offset, true)
    if (fields.has(type)) throw refuseGpu('opaque_duplicate', `expected opaque field ${type} once`)
    fields.set(type, bytes.slice(start, end))
    offset = end
  }
  return fields
}

/** Text that ends in NUL. */
function driverOf(field: Uint8Array | undefined): string | null {
  if (field === undefined) return null
  const text = new TextDecoder('latin1').decode(field)
  const version = /^([0-9.]{1,32})\0*$/.exec(text)?.[1]
  if (version === undefined) throw refuseGpu('opaque_data', 'expected a version of the driver')
  return version
}

function firmwareIdOf(field: Uint8Array | undefined): Uint8Array | null {
  if (field !== undefined && field.length !== DIGEST_BYTES)
    throw refuseGpu('opaque_data', `expected a firmware id of ${DIGEST_BYTES} bytes`)
  return field ?? null
}
