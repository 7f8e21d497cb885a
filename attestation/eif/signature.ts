import { decodeBase64, equalBytes } from '../bytes.ts'
import { CborError, decodeCbor } from '../nitro/cbor.ts'
import { sigStructure } from '../nitro/cose.ts'
import {
  DER_TAGS,
  DerError,
  type DerNode,
  decodeDer,
  decodeObjectIdentifier,
} from '../nitro/der.ts'
import { EifError, type EifErrorCode } from './eif-error.ts'

/** The signature is not verified yet. */
type ImageSignature = {
  readonly certificate: SigningCertificate
  /** PCR0 as the signer stated it. */
  readonly pcr0: Uint8Array
  readonly signature: Uint8Array<ArrayBuffer>
  readonly toBeSigned: Uint8Array<ArrayBuffer>
}

/**
 * Reads an attacker-controlled signature section: CBOR `[{signing_certificate, signature}]`. The
 * two members are arrays of integers instead of byte strings (aws-nitro-enclaves-image-format,
 * PcrSignature): a PEM certificate and a COSE_Sign1 (RFC 9052). Throws EifError.
 */
export function parseImageSignature(section: Uint8Array): ImageSignature {
  const list = decodeStrict(section, 'signature_malformed')
  const entry: unknown = Array.isArray(list) && list.length === 1 ? list[0] : null
  const pem = readIntegers(entry, 'signing_certificate')
  const cose = readIntegers(entry, 'signature')
  if (!(entry instanceof Map) || entry.size !== 2 || pem === null || cose === null)
    throw new EifError(
      'signature_malformed',
      'expected [{signing_certificate, signature}], both as integers',
    )
  const certificate = parseSigningCertificate(pem)
  return { certificate, ...parseCose(cose, certificate) }
}

/**
 * Checks that the certificate's key signed exactly the PCR0 of this image. Does not check whether
 * the certificate can be trusted: anyone can sign an image with their own certificate. PCR8
 * identifies the certificate. Throws EifError `signature_payload` or `signature_invalid`.
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
  if (!(unprotected instanceof Map) || unprotected.size !== 0)
    throw coseMalformed('no unprotected header')
  const header = decodeStrict(protectedHeader, 'cose_malformed')
  if (!(header instanceof Map)) throw coseMalformed('a map as protected header')
  if (header.size !== 1 || header.get(ALGORITHM_LABEL) !== curve.identifier)
    throw new EifError('cose_algorithm', `expected a protected header of ${curve.name} alone`)
  return {
    pcr0: parsePayload(payload),
    signature: new Uint8Array(signature),
    toBeSigned: sigStructure({ protectedHeader, payload }),
  }
}

/** `{register_index: 0, register_value: [integers]}`: AWS's signer signs only PCR0. */
function parsePayload(payload: Uint8Array): Uint8Array {
  const info = decodeStrict(payload, 'cose_malformed')
  const value = readIntegers(info, 'register_value')
  if (
    !(info instanceof Map) ||
    info.size !== 2 ||
    info.get('register_index') !== 0 ||
    value === null
  )
    throw coseMalformed('PCR0 as payload')
  return value
}

const ALGORITHM_LABEL = 1

function decodeStrict(bytes: Uint8Array, code: EifErrorCode): unknown {
  try {
    const { value, end } = decodeCbor(bytes)
    if (end === bytes.length) return value
  } catch (error) {
    if (error instanceof CborError) throw new EifError(code, error.message)
    throw error
  }
  throw new EifError(code, 'expected one CBOR item and nothing after it')
}

/** The integers in the array `entry[name]`, as bytes. Null for any other form. */
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

/** A curve that AWS's image signer accepts, with its COSE algorithm (RFC 9053). */
type SigningCurve = {
  readonly namedCurve: 'P-256' | 'P-384' | 'P-521'
  readonly hash: 'SHA-256' | 'SHA-384' | 'SHA-512'
  readonly name: 'ES256' | 'ES384' | 'ES512'
  /** The identifier of the algorithm in a COSE header. */
  readonly identifier: number
}

type SigningCertificate = {
  readonly der: Uint8Array<ArrayBuffer>
  /** SubjectPublicKeyInfo, DER. */
  readonly publicKey: Uint8Array<ArrayBuffer>
  readonly curve: SigningCurve
}

/**
 * Reads the first certificate of attacker-controlled PEM text, as AWS's reader does. Checks only
 * its encoding and its key. A verifier that knows PCR8 decides whether to trust the certificate.
 * Throws EifError `certificate_malformed`.
 */
export function parseSigningCertificate(pem: Uint8Array): SigningCertificate {
  const der = decodePem(pem)
  const publicKey = findPublicKey(decodeCertificateDer(der))
  const [algorithm, curve] = publicKey.children[0]?.children.map(readIdentifier) ?? []
  const known = algorithm === EC_PUBLIC_KEY ? SIGNING_CURVES.get(curve ?? '') : undefined
  if (known === undefined) throw malformed('expected an EC key on P-256, P-384 or P-521')
  return { der, publicKey: publicKey.encoding.slice(), curve: known }
}

const EC_PUBLIC_KEY = '1.2.840.10045.2.1'

/** Keyed by the object identifier of the curve (RFC 5480, 2.1.1.1). */
const SIGNING_CURVES: ReadonlyMap<string, SigningCurve> = new Map([
  ['1.2.840.10045.3.1.7', { namedCurve: 'P-256', hash: 'SHA-256', name: 'ES256', identifier: -7 }],
  ['1.3.132.0.34', { namedCurve: 'P-384', hash: 'SHA-384', name: 'ES384', identifier: -35 }],
  ['1.3.132.0.35', { namedCurve: 'P-521', hash: 'SHA-512', name: 'ES512', identifier: -36 }],
])

const PEM_BLOCK = /-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----/

/** The tag [0] of the field `version`. */
const VERSION_TAG = 0xa0

function decodePem(pem: Uint8Array): Uint8Array<ArrayBuffer> {
  const body = PEM_BLOCK.exec(new TextDecoder('latin1').decode(pem))?.[1]
  if (body === undefined) throw malformed('expected a PEM certificate')
  try {
    return new Uint8Array(decodeBase64(body.replace(/\s+/g, '')))
  } catch {
    throw malformed('expected base64 in the PEM certificate')
  }
}

function decodeCertificateDer(der: Uint8Array<ArrayBuffer>): DerNode {
  try {
    return decodeDer(der)
  } catch (error) {
    if (error instanceof DerError) throw malformed(error.message)
    throw error
  }
}

/**
 * The field that holds the public key. It follows version (optional), serial, algorithm, issuer,
 * validity and subject (RFC 5280, 4.1).
 */
function findPublicKey(certificate: DerNode): DerNode {
  const fields =
    certificate.tag === DER_TAGS.sequence ? (certificate.children[0]?.children ?? []) : []
  const publicKey = fields[fields[0]?.tag === VERSION_TAG ? 6 : 5]
  if (publicKey?.tag !== DER_TAGS.sequence)
    throw malformed('expected a certificate with a public key')
  return publicKey
}

function readIdentifier(node: DerNode): string {
  return node.tag === DER_TAGS.objectIdentifier ? decodeObjectIdentifier(node.content) : ''
}

function malformed(message: string): EifError {
  return new EifError('certificate_malformed', message)
}
