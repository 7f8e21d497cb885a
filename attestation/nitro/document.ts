import { AttestationError } from './attestation-error.ts'
import { CborError, decodeCbor } from './cbor.ts'
import { decodeCose, refuseCbor } from './cose.ts'

/**
 * Length limits for the fields, inclusive. AWS signs fields of 1024 bytes, though its documentation
 * says 512 in one place.
 */
export const FIELD_BYTES_MAX = 1024
const CERTIFICATE_BYTES_MAX = 1024
const CABUNDLE_CERTIFICATES_MAX = 32
export const PCRS_MAX = 32
/** The size of SHA-384, the only digest that documents use. */
export const PCR_BYTES = 48

/**
 * The fields in the payload of an attestation document. They are only claimed until signature and
 * chain are verified. `timestampMs`: Unix milliseconds, beyond 2^53 the nearest double. A field
 * that was absent or null is null. An empty field is not null.
 */
export type AttestationDocument = {
  readonly moduleId: string
  readonly timestampMs: number
  /** PCR values of 48 bytes, by index 0 to 31, ascending. 0, 1 and 2 are always present. */
  readonly pcrs: ReadonlyMap<number, Uint8Array>
  /** DER of the leaf. */
  readonly certificate: Uint8Array<ArrayBuffer>
  /** DER of the issuing certificates, root first. */
  readonly cabundle: readonly Uint8Array<ArrayBuffer>[]
  readonly publicKey: Uint8Array | null
  readonly userData: Uint8Array | null
  readonly nonce: Uint8Array | null
  /** Keys that AWS does not document, in the order of the payload. */
  readonly unknownKeys: readonly string[]
}

/**
 * Decodes an attestation document (COSE_Sign1, binary). Checks only its form (rules 1 to 12), so it
 * proves nothing: anyone can write such a document. Throws AttestationError.
 */
export function decodeAttestationPayload(bytes: Uint8Array): AttestationDocument {
  return parseDocument(decodeCose(bytes).payload)
}

/**
 * Parses the fields of attacker-controlled payload bytes (rules 6 to 12). Throws AttestationError.
 */
export function parseDocument(payload: Uint8Array): AttestationDocument {
  const fields = decodePayload(payload)
  if (fields.has('nitrotpm_pcrs')) {
    throw new AttestationError(
      'nitrotpm_document',
      'expected a document of an enclave, got a document of a NitroTPM',
    )
  }
  checkDigest(fields)
  return {
    moduleId: moduleIdOf(fields),
    timestampMs: timestampOf(fields),
    pcrs: pcrsOf(fields.get('pcrs')),
    certificate: leafOf(fields.get('certificate')),
    cabundle: cabundleOf(fields.get('cabundle')),
    publicKey: optionalBytesOf(fields, { name: 'public_key', bytesMin: 1 }),
    userData: optionalBytesOf(fields, { name: 'user_data', bytesMin: 0 }),
    nonce: optionalBytesOf(fields, { name: 'nonce', bytesMin: 0 }),
    unknownKeys: [...fields.keys()].filter((key) => !KNOWN_KEYS.has(key)),
  }
}

export function isBytes(
  value: unknown,
  { bytesMin, bytesMax }: { readonly bytesMin: number; readonly bytesMax: number },
): value is Uint8Array {
  return value instanceof Uint8Array && value.length >= bytesMin && value.length <= bytesMax
}

type Fields = ReadonlyMap<string, unknown>

const KNOWN_KEYS: ReadonlySet<string> = new Set([
  'module_id',
  'digest',
  'timestamp',
  'pcrs',
  'certificate',
  'cabundle',
  'public_key',
  'user_data',
  'nonce',
])

function decodePayload(payload: Uint8Array): Fields {
  const { value, end } = decodePayloadItem(payload)
  if (!(value instanceof Map))
    throw new AttestationError('payload_not_map', 'expected the payload to be a map')
  if (end !== payload.length) {
    throw new AttestationError(
      'payload_trailing_bytes',
      `${payload.length - end} bytes after the payload's map`,
    )
  }
  const fields = new Map<string, unknown>()
  for (const [key, item] of value) {
    if (typeof key !== 'string')
      throw new AttestationError('payload_key_type', 'expected every key to be text')
    fields.set(key, item)
  }
  return fields
}

/** Accepts indefinite length only for the payload's map: AWS uses this form since mid-2025. */
function decodePayloadItem(payload: Uint8Array): ReturnType<typeof decodeCbor> {
  try {
    return decodeCbor(payload, { indefinite: 'top' })
  } catch (error) {
    if (!(error instanceof CborError)) throw error
    throw refusePayload(error)
  }
}

function refusePayload(error: CborError): AttestationError {
  const { fault, path } = error
  const inPcrs = path.length === 1 && path[0] === 'pcrs'
  if (fault === 'duplicate_key' && path.length === 0) {
    return new AttestationError('payload_duplicate_key', `payload: ${error.message}`)
  }
  if (fault === 'key_type' && path.length === 0) {
    return new AttestationError('payload_key_type', `payload: ${error.message}`)
  }
  if (fault === 'duplicate_key' && inPcrs) {
    return new AttestationError('pcr_duplicate_index', `pcrs: ${error.message}`)
  }
  if (fault === 'key_type' && inPcrs) {
    return new AttestationError('pcr_index_invalid', `pcrs: ${error.message}`)
  }
  return refuseCbor(error, 'payload')
}

function moduleIdOf(fields: Fields): string {
  const value = fields.get('module_id')
  if (typeof value !== 'string' || value === '') {
    throw new AttestationError(
      'module_id_invalid',
      'expected module_id to be text that is not empty',
    )
  }
  return value
}

function checkDigest(fields: Fields): void {
  if (fields.get('digest') === 'SHA384') return
  throw new AttestationError('digest_invalid', 'expected digest to be "SHA384"')
}

function timestampOf(fields: Fields): number {
  const value = fields.get('timestamp')
  if ((typeof value !== 'number' && typeof value !== 'bigint') || value <= 0) {
    throw new AttestationError(
      'timestamp_invalid',
      'expected timestamp to be an unsigned integer above 0',
    )
  }
  return Number(value)
}

function pcrsOf(value: unknown): ReadonlyMap<number, Uint8Array> {
  if (!(value instanceof Map))
    throw new AttestationError('pcrs_malformed', 'expected pcrs to be a map')
  if (value.size < 1 || value.size > PCRS_MAX) {
    throw new AttestationError('pcrs_count', `expected 1 to ${PCRS_MAX} pcrs, got ${value.size}`)
  }
  const pcrs: [number, Uint8Array][] = []
  for (const [index, pcr] of value) {
    if (typeof index !== 'number' || index < 0 || index >= PCRS_MAX) {
      throw new AttestationError(
        'pcr_index_invalid',
        `expected PCR indexes from 0 to ${PCRS_MAX - 1}`,
      )
    }
    if (!(pcr instanceof Uint8Array) || pcr.length !== PCR_BYTES) {
      throw new AttestationError(
        'pcr_value_invalid',
        `expected PCR${index} to be ${PCR_BYTES} bytes`,
      )
    }
    pcrs.push([index, new Uint8Array(pcr)])
  }
  const missing = [0, 1, 2].find((index) => !value.has(index))
  if (missing !== undefined)
    throw new AttestationError('pcr_missing', `expected PCR${missing} to be there`)
  return new Map(pcrs.sort(([left], [right]) => left - right))
}

function leafOf(value: unknown): Uint8Array<ArrayBuffer> {
  if (isBytes(value, { bytesMin: 1, bytesMax: CERTIFICATE_BYTES_MAX })) return new Uint8Array(value)
  throw new AttestationError(
    'certificate_size',
    `expected certificate to be 1 to ${CERTIFICATE_BYTES_MAX} bytes`,
  )
}

function cabundleOf(value: unknown): readonly Uint8Array<ArrayBuffer>[] {
  if (!Array.isArray(value))
    throw new AttestationError('cabundle_malformed', 'expected cabundle to be an array')
  const items: readonly unknown[] = value
  if (items.length < 1 || items.length > CABUNDLE_CERTIFICATES_MAX) {
    throw new AttestationError(
      'cabundle_count',
      `expected 1 to ${CABUNDLE_CERTIFICATES_MAX} certificates in cabundle, got ${items.length}`,
    )
  }
  return items.map((item, index) => {
    if (isBytes(item, { bytesMin: 1, bytesMax: CERTIFICATE_BYTES_MAX })) return new Uint8Array(item)
    throw new AttestationError(
      'cabundle_certificate_size',
      `expected cabundle[${index}] to be 1 to ${CERTIFICATE_BYTES_MAX} bytes`,
    )
  })
}

type OptionalField = {
  readonly name: 'public_key' | 'user_data' | 'nonce'
  readonly bytesMin: number
}

function optionalBytesOf(fields: Fields, { name, bytesMin }: OptionalField): Uint8Array | null {
  const value = fields.get(name)
  if (value === undefined || value === null) return null
  if (isBytes(value, { bytesMin, bytesMax: FIELD_BYTES_MAX })) return new Uint8Array(value)
  throw new AttestationError(
    `${name}_invalid`,
    `expected ${name} to be null or ${bytesMin} to ${FIELD_BYTES_MAX} bytes`,
  )
}
