import { sha256 } from '../bytes.ts'
import { AttestationError } from './attestation-error.ts'
import { decodeDerOf, type Extensions, parseExtensions, refuseDer } from './certificate-extensions.ts'
import { type DistinguishedName, parseName } from './certificate-name.ts'
import type { DerNode } from './der.ts'
import { DER_TAGS, decodeObjectIdentifier, decodeTime } from './der-value.ts'
import { isPointOnCurve, POINT_BYTES } from './p384.ts'

/** What a certificate says (RFC 5280 section 4.1). Claims, until the chain it stands in is verified. */
export type Certificate = Extensions & {
  /** Which one, for messages: `cabundle[1]` or `leaf`. */
  readonly where: string
  /** SHA-256 of the DER, 32 bytes. */
  readonly sha256: Uint8Array
  /** Contents of the serial INTEGER: big-endian, not negative, with a leading zero where its first bit is set. */
  readonly serial: Uint8Array
  readonly issuer: DistinguishedName
  readonly subject: DistinguishedName
  /** Unix milliseconds, inclusive; certificates count whole seconds. */
  readonly notBeforeMs: number
  readonly notAfterMs: number
  /** Uncompressed point on P-384. */
  readonly point: Uint8Array<ArrayBuffer>
  /** The bytes that the issuer signed. */
  readonly signed: Uint8Array<ArrayBuffer>
  /** DER of ECDSA-Sig-Value as it stands in the bit string. */
  readonly signature: Uint8Array<ArrayBuffer>
}

/**
 * Gives what the attacker-controlled DER of a certificate says: v3, P-384, ecdsa-with-SHA384, each level fully consumed
 * (rule 15). It verifies no signature and checks no time or purpose. Throws AttestationError.
 */
export function parseCertificate(der: Uint8Array<ArrayBuffer>, where: string): Certificate {
  const [signed, algorithm, signature] = tripleOf(decodeDerOf(der, where), where)
  const fields = splitFields(signed, where)
  checkAlgorithms({ inner: fields.algorithm, outer: algorithm }, where)
  const extensions = parseExtensions(fields.extensions, where)
  return {
    where,
    sha256: sha256(der),
    serial: serialOf(fields.serial, where),
    issuer: nameOf(fields.issuer, where),
    subject: nameOf(fields.subject, where),
    ...validityOf(fields.validity, where),
    point: pointOf(fields.publicKey, where),
    ...extensions,
    signed: signed.encoding,
    signature: bitsOf(signature, where),
  }
}

const ECDSA_WITH_SHA384 = '1.2.840.10045.4.3.3'
const EC_PUBLIC_KEY = '1.2.840.10045.2.1'
const SECP384R1 = '1.3.132.0.34'

const VERSION_FIELD = 0xa0
const EXTENSIONS_FIELD = 0xa3

type TbsFields = {
  readonly serial: DerNode
  readonly algorithm: DerNode
  readonly issuer: DerNode
  readonly validity: DerNode
  readonly subject: DerNode
  readonly publicKey: DerNode
  readonly extensions: DerNode | undefined
}

function tripleOf(node: DerNode, where: string): readonly [DerNode, DerNode, DerNode] {
  const [first, second, third] = node.children
  if (node.tag !== DER_TAGS.sequence || node.children.length !== 3 || !first || !second || !third) {
    throw refuseDer(where, 'a sequence of contents, algorithm and signature')
  }
  return [first, second, third]
}

/** Unique identifiers ([1] and [2], unused since v2) are not accepted. */
function splitFields({ tag, children }: DerNode, where: string): TbsFields {
  checkVersion(children[0], where)
  const [, serial, algorithm, issuer, validity, subject, publicKey, extensions] = children
  const isWhole = serial && algorithm && issuer && validity && subject && publicKey
  if (tag !== DER_TAGS.sequence || !isWhole || children.length > 8) {
    throw refuseDer(where, 'the fields of a v3 certificate')
  }
  if (extensions && extensions.tag !== EXTENSIONS_FIELD)
    throw refuseDer(where, 'extensions in the last field')
  return { serial, algorithm, issuer, validity, subject, publicKey, extensions }
}

function checkVersion(field: DerNode | undefined, where: string): void {
  const [version] = field?.tag === VERSION_FIELD ? field.children : []
  const isV3 = version?.tag === DER_TAGS.integer && version.content.length === 1 && version.content[0] === 2
  if (!isV3 || field?.children.length !== 1) {
    throw new AttestationError('certificate_version', `${where}: expected version 3`)
  }
}

type Algorithms = { readonly inner: DerNode; readonly outer: DerNode }

function checkAlgorithms({ inner, outer }: Algorithms, where: string): void {
  const same =
    inner.encoding.length === outer.encoding.length &&
    inner.encoding.every((byte, index) => byte === outer.encoding[index])
  if (!same) {
    const message = `${where}: expected the same signature algorithm inside and outside`
    throw new AttestationError('certificate_algorithm_mismatch', message)
  }
  const [type] = inner.children
  const isSequence = inner.tag === DER_TAGS.sequence && inner.children.length === 1
  if (!isSequence || type?.tag !== DER_TAGS.objectIdentifier || !isType(type, ECDSA_WITH_SHA384)) {
    throw new AttestationError('certificate_algorithm', `${where}: expected ecdsa-with-SHA384`)
  }
}

function isType(node: DerNode | undefined, identifier: string): boolean {
  return node?.tag === DER_TAGS.objectIdentifier && decodeObjectIdentifier(node.content) === identifier
}

function serialOf({ tag, content }: DerNode, where: string): Uint8Array {
  if (tag !== DER_TAGS.integer || (content[0] ?? 0x80) >= 0x80) {
    throw refuseDer(where, 'a serial number that is not negative')
  }
  return content
}

function nameOf(node: DerNode, where: string): DistinguishedName {
  const name = parseName(node)
  if (name === null) throw refuseDer(where, 'issuer and subject to be names')
  return name
}

function validityOf({ tag, children }: DerNode, where: string): { notBeforeMs: number; notAfterMs: number } {
  const [first, second] = children
  if (tag !== DER_TAGS.sequence || children.length !== 2) throw refuseDer(where, 'a validity of two times')
  return { notBeforeMs: timeOf(first, where), notAfterMs: timeOf(second, where) }
}

/** RFC 5280 section 4.1.2.5: UTCTime through 2049, GeneralizedTime from then on. */
function timeOf(node: DerNode | undefined, where: string): number {
  const isTime = node?.tag === DER_TAGS.utcTime || node?.tag === DER_TAGS.generalizedTime
  const timeMs = node && isTime ? decodeTime(node.tag, node.content) : null
  if (timeMs === null || (node?.tag === DER_TAGS.generalizedTime && timeMs < YEAR_2050_MS))
    throw refuseDer(where, 'a UTCTime, or a GeneralizedTime from 2050 on')
  return timeMs
}

const YEAR_2050_MS = Date.UTC(2050)

function pointOf(publicKey: DerNode, where: string): Uint8Array<ArrayBuffer> {
  const [algorithm, bits, ...rest] = publicKey.children
  if (publicKey.tag !== DER_TAGS.sequence || algorithm?.tag !== DER_TAGS.sequence || rest.length > 0) {
    throw refuseDer(where, 'a public key of algorithm and bits')
  }
  const [type, curve] = algorithm.children
  if (!isType(type, EC_PUBLIC_KEY)) {
    throw new AttestationError('certificate_key_type', `${where}: expected an elliptic curve key`)
  }
  if (algorithm.children.length !== 2 || !isType(curve, SECP384R1)) {
    throw new AttestationError('certificate_curve', `${where}: expected the named curve P-384`)
  }
  const point = bitsOf(bits, where)
  if (!isPointOnCurve(point)) {
    const message = `${where}: expected an uncompressed point of ${POINT_BYTES} bytes on P-384`
    throw new AttestationError('certificate_point', message)
  }
  return point
}

function bitsOf(node: DerNode | undefined, where: string): Uint8Array<ArrayBuffer> {
  if (node?.tag !== DER_TAGS.bitString || node.content[0] !== 0) {
    throw refuseDer(where, 'a bit string of whole bytes')
  }
  return node.content.subarray(1)
}
