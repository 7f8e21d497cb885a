import { concatBytes, encodeUtf8, equalBytes } from '../bytes.ts'
import { CborError, scanCbor } from '../nitro/cbor-scanner.ts'
import { decodeScannedCbor } from '../nitro/cose.ts'
import { EifError, type EifErrorCode } from './eif-error.ts'
import { parseSigningCertificate, type SigningCertificate } from './signing-certificate.ts'

/** A signature section as it is read: whose it claims to be, not yet whether it is. */
export type ImageSignature = {
  readonly certificate: SigningCertificate
  /** The register value that was signed. */
  readonly pcr0: Uint8Array
  readonly signature: Uint8Array<ArrayBuffer>
  /** The bytes that the signature is over. */
  readonly toBeSigned: Uint8Array<ArrayBuffer>
}

/**
 * Reads a signature section: CBOR `[{signing_certificate, signature}]`, both arrays of integers where byte strings
 * would be expected (aws-nitro-enclaves-image-format, PcrSignature); the certificate is PEM, the signature COSE_Sign1
 * (RFC 9052). Attacker-controlled throughout. Throws EifError.
 */
export function parseImageSignature(section: Uint8Array): ImageSignature {
  const list = decodeStrict(section, 'signature_malformed')
  const entry: unknown = Array.isArray(list) && list.length === 1 ? list[0] : null
  const pem = readIntegers(entry, 'signing_certificate')
  const cose = readIntegers(entry, 'signature')
  if (!(entry instanceof Map) || entry.size !== 2 || pem === null || cose === null)
    throw new EifError('signature_malformed', 'expected [{signing_certificate, signature}], both as integers')
  const certificate = parseSigningCertificate(pem)
  return { certificate, ...parseCose(cose, certificate) }
}

/**
 * Checks that the certificate's key signed exactly this image's PCR0. Does not say whether the certificate is one to
 * trust: anyone can sign any image with a certificate of their own, which PCR8 then shows. Throws EifError
 * `signature_payload` or `signature_invalid`.
 */
export async function verifyImageSignature(image: ImageSignature, pcr0: Uint8Array): Promise<void> {
  if (!equalBytes(image.pcr0, pcr0))
    throw new EifError('signature_payload', "expected a signature over this image's PCR0")
  const { namedCurve, hash } = image.certificate.curve
  const { subtle } = globalThis.crypto
  const algorithm = { name: 'ECDSA', namedCurve }
  const key = await subtle
    .importKey('spki', image.certificate.publicKey, algorithm, false, ['verify'])
    .catch(() => null)
  if (key === null)
    throw new EifError('certificate_malformed', `expected a point on ${namedCurve} as public key`)
  if (!(await subtle.verify({ name: 'ECDSA', hash }, key, image.signature, image.toBeSigned)))
    throw new EifError('signature_invalid', "expected a signature by the certificate's key")
}

type CoseParts = Omit<ImageSignature, 'certificate'>

function parseCose(bytes: Uint8Array, { curve }: SigningCertificate): CoseParts {
  const cose = decodeStrict(bytes, 'cose_malformed')
  if (!Array.isArray(cose) || cose.length !== 4) throw coseMalformed('an array of four')
  const [protectedHeader, unprotected, payload, signature]: readonly unknown[] = cose
  if (!isBytes(protectedHeader) || !isBytes(payload) || !isBytes(signature))
    throw coseMalformed('byte strings')
  if (!(unprotected instanceof Map) || unprotected.size !== 0) throw coseMalformed('no unprotected header')
  const header = decodeStrict(protectedHeader, 'cose_malformed')
  if (!(header instanceof Map)) throw coseMalformed('a map as protected header')
  if (header.size !== 1 || header.get(ALGORITHM_LABEL) !== curve.identifier)
    throw new EifError('cose_algorithm', `expected a protected header of ${curve.name} alone`)
  return {
    pcr0: parsePayload(payload),
    signature: new Uint8Array(signature),
    toBeSigned: new Uint8Array(encodeSigStructure({ protectedHeader, payload })),
  }
}

/** `{register_index: 0, register_value: [integers]}`: AWS's signer signs PCR0 and no other register. */
function parsePayload(payload: Uint8Array): Uint8Array {
  const info = decodeStrict(payload, 'cose_malformed')
  const value = readIntegers(info, 'register_value')
  if (!(info instanceof Map) || info.size !== 2 || info.get('register_index') !== 0 || value === null)
    throw coseMalformed('PCR0 as payload')
  return value
}

const ALGORITHM_LABEL = 1

/** Sig_structure (RFC 9052, 4.4) without external data. Section sizes keep both parts far below 64 KiB. */
function encodeSigStructure(parts: { protectedHeader: Uint8Array; payload: Uint8Array }): Uint8Array {
  return concatBytes(
    Uint8Array.of(0x84, 0x6a),
    encodeUtf8('Signature1'),
    encodeByteString(parts.protectedHeader),
    encodeByteString(new Uint8Array()),
    encodeByteString(parts.payload),
  )
}

function encodeByteString(bytes: Uint8Array): Uint8Array {
  const { length } = bytes
  if (length < 24) return concatBytes(Uint8Array.of(0x40 | length), bytes)
  if (length < 256) return concatBytes(Uint8Array.of(0x58, length), bytes)
  return concatBytes(Uint8Array.of(0x59, length >> 8, length & 0xff), bytes)
}

/** One strict CBOR item, read in the one way there is to read it. */
function decodeStrict(bytes: Uint8Array, code: EifErrorCode): unknown {
  try {
    if (scanCbor(bytes, { offset: 0, indefiniteTop: false }) === bytes.length) return decodeScannedCbor(bytes)
  } catch (error) {
    if (error instanceof CborError) throw new EifError(code, error.message)
    throw error
  }
  throw new EifError(code, 'expected one CBOR item and nothing after it')
}

/** The bytes that `entry` has as an array of integers under `name`, or null. */
function readIntegers(entry: unknown, name: string): Uint8Array | null {
  const list: unknown = entry instanceof Map ? entry.get(name) : null
  return Array.isArray(list) && list.every(isByte) ? Uint8Array.from(list) : null
}

function isByte(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 255
}

function isBytes(value: unknown): value is Uint8Array {
  return value instanceof Uint8Array
}

function coseMalformed(expected: string): EifError {
  return new EifError('cose_malformed', `expected ${expected}`)
}
