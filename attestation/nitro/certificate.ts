import { encodeHex, equalBytes, sha256 } from '../bytes.ts'
import { AttestationError } from './attestation-error.ts'
import {
  DER_TAGS,
  DerError,
  type DerNode,
  decodeDer,
  decodeObjectIdentifier,
  decodeTime,
  latin1,
} from './der.ts'
import {
  type EcdsaCurve,
  type EcdsaKey,
  importPoint,
  isPointOnCurve,
  isSignatureInRange,
  P384,
  pointBytes,
} from './ecdsa.ts'

/** The form of the certificates of one authority. */
export type CertificateProfile = {
  /** The curve of the keys, and of the issuers' signatures. */
  readonly curve: EcdsaCurve
  /** True for types of extensions whose values need not be DER. These values are not parsed. */
  isOpaque(type: string): boolean
  /**
   * Types of critical extensions that are accepted in addition to the checked types. Default: none.
   */
  readonly understood?: readonly string[]
  /** What messages call the list of CA certificates. */
  readonly authorities: string
}

/** AWS's certificates: P-384, and every extension is DER. */
export const NITRO_CERTIFICATES: CertificateProfile = {
  curve: P384,
  isOpaque: () => false,
  authorities: 'cabundle',
}

/** A certificate (RFC 5280 section 4.1). Its content is only a claim until it is verified. */
export type Certificate = Omit<CertificateFields, 'algorithm' | 'publicKey'> & {
  readonly curve: EcdsaCurve
  /** Uncompressed point on the curve. */
  readonly point: Uint8Array<ArrayBuffer>
}

/** The fields of a certificate with any kind of key and signature. */
export type CertificateFields = Extensions & {
  /** The name of the certificate in messages: `cabundle[1]` or `leaf`. */
  readonly where: string
  /** SHA-256 of the DER, 32 bytes. */
  readonly sha256: Uint8Array
  /** Content of the serial INTEGER: big-endian, with a leading zero if its first bit is set. */
  readonly serial: Uint8Array
  readonly issuer: DistinguishedName
  readonly subject: DistinguishedName
  /** Unix milliseconds, inclusive. Certificates have whole seconds. */
  readonly notBeforeMs: number
  readonly notAfterMs: number
  /** AlgorithmIdentifier of the signature, equal inside and outside of the signed part. */
  readonly algorithm: DerNode
  /** SubjectPublicKeyInfo. */
  readonly publicKey: DerNode
  /** The bytes that the issuer signed. */
  readonly signed: Uint8Array<ArrayBuffer>
  /** The content of the bit string: for ECDSA, DER of ECDSA-Sig-Value. */
  readonly signature: Uint8Array<ArrayBuffer>
}

/**
 * Parses the attacker-controlled DER of a certificate: v3, key and signature on the profile's
 * curve, without unread bytes at any level (rule 15). Does not verify signature, times or purposes.
 * Throws AttestationError.
 */
export function parseCertificate(
  der: Uint8Array<ArrayBuffer>,
  where: string,
  profile = NITRO_CERTIFICATES,
): Certificate {
  const { curve } = profile
  const { algorithm, publicKey, ...fields } = readCertificate(der, where, profile)
  checkAlgorithm(algorithm, where, curve)
  return { ...fields, curve, point: pointOf(publicKey, where, curve) }
}

/** Caches imported keys: an import takes as long as a verification, and CA keys are used often. */
const keys = new WeakMap<Certificate, Promise<EcdsaKey | null>>()

/** Null if WebCrypto refuses the point. */
export function importKeyOf(certificate: Certificate): Promise<EcdsaKey | null> {
  const key = keys.get(certificate) ?? importPoint(certificate.point, certificate.curve)
  keys.set(certificate, key)
  return key
}

/** Parses as parseCertificate does, for any key and signature. Throws AttestationError. */
export function readCertificate(
  der: Uint8Array<ArrayBuffer>,
  where: string,
  profile: Pick<CertificateProfile, 'isOpaque' | 'understood'>,
): CertificateFields {
  const [signed, algorithm, signature] = tripleOf(decodeDerOf(der, where), where)
  const fields = splitFields(signed, where)
  if (!equalBytes(fields.algorithm.encoding, algorithm.encoding)) {
    const message = `${where}: expected the same signature algorithm inside and outside`
    throw new AttestationError('certificate_algorithm_mismatch', message)
  }
  const extensions = parseExtensions(fields.extensions, where, profile)
  return {
    algorithm,
    publicKey: fields.publicKey,
    where,
    sha256: sha256(der),
    serial: serialOf(fields.serial, where),
    issuer: nameOf(fields.issuer, where),
    subject: nameOf(fields.subject, where),
    ...validityOf(fields.validity, where),
    ...extensions,
    signed: signed.encoding,
    signature: bitsOf(signature, where),
  }
}

const EC_PUBLIC_KEY = '1.2.840.10045.2.1'

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

/** Refuses unique identifiers ([1] and [2], unused since v2). */
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
  const isV3 =
    version?.tag === DER_TAGS.integer && version.content.length === 1 && version.content[0] === 2
  if (!isV3 || field?.children.length !== 1) {
    throw new AttestationError('certificate_version', `${where}: expected version 3`)
  }
}

/** Expects ECDSA with the hash of `curve`. Throws AttestationError. */
export function checkAlgorithm(algorithm: DerNode, where: string, curve: EcdsaCurve): void {
  const [type] = algorithm.children
  const isSequence = algorithm.tag === DER_TAGS.sequence && algorithm.children.length === 1
  if (!isSequence || !isType(type, curve.algorithm)) {
    const expected = `ecdsa-with-${curve.hash.replace('-', '')}`
    throw new AttestationError('certificate_algorithm', `${where}: expected ${expected}`)
  }
}

function isType(node: DerNode | undefined, identifier: string): boolean {
  return (
    node?.tag === DER_TAGS.objectIdentifier && decodeObjectIdentifier(node.content) === identifier
  )
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

function validityOf(
  { tag, children }: DerNode,
  where: string,
): { notBeforeMs: number; notAfterMs: number } {
  const [first, second] = children
  if (tag !== DER_TAGS.sequence || children.length !== 2)
    throw refuseDer(where, 'a validity of two times')
  return { notBeforeMs: timeOf(first, where), notAfterMs: timeOf(second, where) }
}

/** RFC 5280 section 4.1.2.5: UTCTime through 2049, GeneralizedTime after that. */
function timeOf(node: DerNode | undefined, where: string): number {
  const isTime = node?.tag === DER_TAGS.utcTime || node?.tag === DER_TAGS.generalizedTime
  const timeMs = node && isTime ? decodeTime(node.tag, node.content) : null
  if (timeMs === null || (node?.tag === DER_TAGS.generalizedTime && timeMs < YEAR_2050_MS))
    throw refuseDer(where, 'a UTCTime, or a GeneralizedTime from 2050 on')
  return timeMs
}

const YEAR_2050_MS = Date.UTC(2050)

/** Throws AttestationError if the key is not a point on `curve`. */
export function pointOf(
  publicKey: DerNode,
  where: string,
  curve: EcdsaCurve,
): Uint8Array<ArrayBuffer> {
  const [algorithm, bits, ...rest] = publicKey.children
  if (
    publicKey.tag !== DER_TAGS.sequence ||
    algorithm?.tag !== DER_TAGS.sequence ||
    rest.length > 0
  ) {
    throw refuseDer(where, 'a public key of algorithm and bits')
  }
  const [type, name] = algorithm.children
  if (!isType(type, EC_PUBLIC_KEY)) {
    throw new AttestationError('certificate_key_type', `${where}: expected an elliptic curve key`)
  }
  if (algorithm.children.length !== 2 || !isType(name, curve.identifier)) {
    const message = `${where}: expected the named curve ${curve.name}`
    throw new AttestationError('certificate_curve', message)
  }
  const point = bitsOf(bits, where)
  if (!isPointOnCurve(point, curve)) {
    const message = `${where}: expected an uncompressed point of ${pointBytes(curve)} bytes on ${curve.name}`
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

/** basicConstraints (RFC 5280 section 4.2.1.9). */
type BasicConstraints = {
  readonly critical: boolean
  readonly ca: boolean
  readonly pathLength: number | null
}

/** The bits of keyUsage (RFC 5280 section 4.2.1.3) that the checks need. */
type KeyUsage = {
  readonly digitalSignature: boolean
  readonly keyCertSign: boolean
  readonly cRLSign: boolean
}

/** The extensions that this code understands. A missing extension is null. */
type Extensions = {
  readonly basicConstraints: BasicConstraints | null
  readonly keyUsage: KeyUsage | null
  /** cRLDistributionPoints (RFC 5280 section 4.2.1.13), for callers with revocation lists. */
  readonly distributionPoints: DerNode | null
  /** Values of opaque extensions, by type. */
  readonly opaque: ReadonlyMap<string, Uint8Array<ArrayBuffer>>
}

/**
 * Each type may occur once. Refuses unknown critical extensions, such as name constraints and
 * policies.
 */
function parseExtensions(
  field: DerNode | undefined,
  where: string,
  { isOpaque, understood = [] }: Pick<CertificateProfile, 'isOpaque' | 'understood'>,
): Extensions {
  const found = new Map<string, Extension>()
  const opaque = new Map<string, Uint8Array<ArrayBuffer>>()
  for (const node of field === undefined ? [] : sequenceIn(field, where)) {
    const extension = splitExtension(node, where)
    if (found.has(extension.type) || opaque.has(extension.type)) {
      throw new AttestationError(
        'certificate_duplicate_extension',
        `${where}: ${extension.type} occurs twice`,
      )
    }
    if (extension.critical && ![...UNDERSTOOD, ...understood].includes(extension.type)) {
      const message = `${where}: critical extension ${extension.type} is not understood`
      throw new AttestationError('certificate_critical_extension', message)
    }
    if (isOpaque(extension.type)) opaque.set(extension.type, extension.content)
    else found.set(extension.type, { ...extension, value: decodeDerOf(extension.content, where) })
  }
  const constraints = found.get(BASIC_CONSTRAINTS)
  const usage = found.get(KEY_USAGE)
  return {
    basicConstraints: constraints ? parseBasicConstraints(constraints, where) : null,
    keyUsage: usage ? parseKeyUsage(usage, where) : null,
    distributionPoints: found.get(DISTRIBUTION_POINTS)?.value ?? null,
    opaque,
  }
}

function refuseDer(where: string, expected: string): AttestationError {
  return new AttestationError('certificate_der', `${where}: expected ${expected}`)
}

function decodeDerOf(bytes: Uint8Array<ArrayBuffer>, where: string): DerNode {
  try {
    return decodeDer(bytes)
  } catch (error) {
    if (error instanceof DerError)
      throw new AttestationError('certificate_der', `${where}: ${error.message}`)
    throw error
  }
}

const BASIC_CONSTRAINTS = '2.5.29.19'
const KEY_USAGE = '2.5.29.15'
const DISTRIBUTION_POINTS = '2.5.29.31'
const UNDERSTOOD: ReadonlySet<string> = new Set([BASIC_CONSTRAINTS, KEY_USAGE])

type Extension = { readonly type: string; readonly critical: boolean; readonly value: DerNode }
type RawExtension = Omit<Extension, 'value'> & { readonly content: Uint8Array<ArrayBuffer> }

function sequenceIn({ children }: DerNode, where: string): readonly DerNode[] {
  const [sequence] = children
  if (
    children.length !== 1 ||
    sequence?.tag !== DER_TAGS.sequence ||
    sequence.children.length === 0
  ) {
    throw refuseDer(where, 'a sequence of extensions that is not empty')
  }
  return sequence.children
}

function splitExtension({ tag, children }: DerNode, where: string): RawExtension {
  const [type, ...rest] = children
  const flag = rest.length === 2 ? rest[0] : undefined
  const value = rest.at(-1)
  const isExtension = tag === DER_TAGS.sequence && rest.length >= 1 && rest.length <= 2
  if (
    !isExtension ||
    type?.tag !== DER_TAGS.objectIdentifier ||
    value?.tag !== DER_TAGS.octetString
  ) {
    throw refuseDer(where, 'each extension to be a type, perhaps critical, and a value')
  }
  if (flag && !isTrue(flag)) throw refuseDer(where, 'critical to be TRUE, or absent as its default')
  return {
    type: decodeObjectIdentifier(type.content),
    critical: flag !== undefined,
    content: value.content,
  }
}

function isTrue({ tag, content }: DerNode): boolean {
  return tag === DER_TAGS.boolean && content[0] === 0xff
}

function parseBasicConstraints({ critical, value }: Extension, where: string): BasicConstraints {
  const [flag, length, ...rest] = value.children
  if (value.tag !== DER_TAGS.sequence || rest.length > 0 || (flag && !isTrue(flag))) {
    throw refuseDer(where, 'basicConstraints of cA TRUE or nothing, and perhaps a path length')
  }
  if (length === undefined) return { critical, ca: flag !== undefined, pathLength: null }
  const [digit = 0x80] = length.content
  if (length.tag !== DER_TAGS.integer || length.content.length > 1 || digit >= 0x80) {
    throw refuseDer(where, 'a path length from 0 to 127')
  }
  return { critical, ca: true, pathLength: digit }
}

/** The bit decipherOnly, the last named bit. */
const NINTH_BIT = 0x80

function parseKeyUsage({ value }: Extension, where: string): KeyUsage {
  const [unused = 0, first = 0, second] = value.content
  const last = value.content.at(-1) ?? 0
  const isNamedBits = value.content.length >= 2 && ((last >> unused) & 1) === 1
  const isWithinNine =
    value.content.length === 2 || (value.content.length === 3 && second === NINTH_BIT)
  if (value.tag !== DER_TAGS.bitString || !isNamedBits || !isWithinNine) {
    throw refuseDer(where, 'keyUsage of one to nine bits without trailing zeros')
  }
  return {
    digitalSignature: (first & 0x80) !== 0,
    keyCertSign: (first & 0x04) !== 0,
    cRLSign: (first & 0x02) !== 0,
  }
}

/** A distinguished name (RFC 5280 section 4.1.2.4). Two names are equal if `encoding` is equal. */
type DistinguishedName = {
  readonly encoding: Uint8Array<ArrayBuffer>
  /**
   * The name on one line for people, in the order of the encoding, e.g. `C=US, O=Amazon,
   * CN=aws.nitro-enclaves`.
   */
  readonly text: string
  /** Null if the name has no common name or more than one. */
  readonly commonName: string | null
}

/** Null if the node does not have the form of a Name. */
export function parseName(node: DerNode): DistinguishedName | null {
  if (node.tag !== DER_TAGS.sequence) return null
  const attributes: Attribute[] = []
  for (const set of node.children) {
    if (set.tag !== DER_TAGS.set || set.children.length === 0) return null
    for (const child of set.children) {
      const attribute = parseAttribute(child)
      if (attribute === null) return null
      attributes.push(attribute)
    }
  }
  const commonNames = attributes.filter(({ type }) => type === 'CN')
  return {
    encoding: node.encoding,
    text: attributes.map(({ type, value }) => `${type}=${value}`).join(', '),
    commonName: commonNames.length === 1 ? (commonNames[0]?.value ?? null) : null,
  }
}

type Attribute = { readonly type: string; readonly value: string }

const SHORT_TYPES: Readonly<Record<string, string>> = {
  '2.5.4.3': 'CN',
  '2.5.4.6': 'C',
  '2.5.4.7': 'L',
  '2.5.4.8': 'ST',
  '2.5.4.10': 'O',
  '2.5.4.11': 'OU',
}

const utf8 = new TextDecoder('utf-8', { ignoreBOM: true })

function parseAttribute({ tag, children }: DerNode): Attribute | null {
  const [type, value] = children
  const isPair = tag === DER_TAGS.sequence && children.length === 2
  if (!isPair || type?.tag !== DER_TAGS.objectIdentifier || !value) return null
  const identifier = decodeObjectIdentifier(type.content)
  return { type: SHORT_TYPES[identifier] ?? identifier, value: textOf(value) }
}

/**
 * Returns the text of a string. Writes other types as hex, and also any text with control
 * characters, because it could fake a line on a terminal.
 */
function textOf({ tag, content, encoding }: DerNode): string {
  const isText =
    tag === DER_TAGS.utf8String || tag === DER_TAGS.printableString || tag === DER_TAGS.ia5String
  const text = tag === DER_TAGS.utf8String ? utf8.decode(content) : isText ? latin1(content) : ''
  return isText && !/\p{Cc}|\p{Cf}/u.test(text) ? text : `#${encodeHex(encoding)}`
}

/**
 * Returns r || s of a certificate's signature, from the DER of ECDSA-Sig-Value (RFC 3279
 * section 2.2.3), with r and s in range. Does not verify the signature. Throws AttestationError.
 */
export function parseCertificateSignature({
  signature,
  where,
  curve,
}: Pick<Certificate, 'signature' | 'where' | 'curve'>): Uint8Array<ArrayBuffer> {
  const { coordinateBytes } = curve
  const scalars = decodeSequence(signature).map((node) => scalarOf(node, coordinateBytes))
  const pair = new Uint8Array(2 * coordinateBytes)
  for (const [index, digits] of scalars.entries())
    if (digits !== null) pair.set(digits, (index + 1) * coordinateBytes - digits.length)
  if (scalars.length !== 2 || scalars.includes(null) || !isSignatureInRange(pair, curve)) {
    const message = `${where}: expected a signature of two integers from 1 to n-1 in DER`
    throw new AttestationError('certificate_signature_malformed', message)
  }
  return pair
}

function decodeSequence(signature: Uint8Array<ArrayBuffer>): readonly DerNode[] {
  try {
    const node = decodeDer(signature)
    return node.tag === DER_TAGS.sequence && node.children.length === 2 ? node.children : []
  } catch (error) {
    if (error instanceof DerError) return []
    throw error
  }
}

/** Big-endian bytes without leading zeros. Null if negative, too long or not an INTEGER. */
function scalarOf({ tag, content }: DerNode, bytesMax: number): Uint8Array | null {
  if (tag !== DER_TAGS.integer || (content[0] ?? 0x80) >= 0x80) return null
  const digits = content[0] === 0 ? content.subarray(1) : content
  return digits.length > bytesMax ? null : digits
}
