import { decodeBase64, equalBytes } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { AttestationError } from '../nitro/attestation-error.ts'
import {
  type Certificate,
  importKeyOf,
  parseCertificate,
  parseCertificateSignature,
  parseName,
} from '../nitro/certificate.ts'
import type { RevocationList } from '../nitro/check-revocation.ts'
import {
  DER_TAGS,
  DerError,
  type DerNode,
  decodeDer,
  decodeObjectIdentifier,
  decodeTime,
  latin1,
} from '../nitro/der.ts'
import { type EcdsaCurve, P384, verifyEcdsa } from '../nitro/ecdsa.ts'

export type RevocationListCode =
  | 'malformed' //      not a list in DER or PEM, or not version 2 with nextUpdate
  | 'algorithm' //      not signed by ECDSA with the expected hash
  | 'unsupported' //    a delta, an indirect or partial list, or an unknown critical extension
  | 'not_yet_valid' //  not valid yet
  | 'foreign' //        no CA certificate in the document's chain is the list's issuer
  | 'signature' //      the issuer in the chain did not sign the list
  | 'key_usage' //      the issuer may not sign lists
  | 'scope' //          the list does not cover the certificate that its issuer issued in the chain
  | 'unused' //         the list applies to no document

/** A revocation list cannot be used. Such a list is always reported, never ignored. */
export class RevocationListError extends FormatError {
  override readonly name = 'RevocationListError'
  declare readonly code: RevocationListCode
  readonly source: string

  constructor(
    code: RevocationListCode,
    { source, message }: { readonly source: string; readonly message: string },
  ) {
    super(code, message)
    this.source = source
  }
}

/** Only the form of the list was checked. */
export type ParsedList = {
  /** The name of the list in error messages. */
  readonly source: string
  /** The bytes that the issuer signed. `signature` is DER. */
  readonly signed: Uint8Array<ArrayBuffer>
  readonly signature: Uint8Array<ArrayBuffer>
  /** DER of the issuer's name. */
  readonly issuer: Uint8Array
  readonly serials: readonly Uint8Array[]
  /** Unix milliseconds. */
  readonly thisUpdateMs: number
  readonly nextUpdateMs: number
  readonly scope: ListScope
}

/** The certificates of the issuer that are covered by the list (RFC 5280 section 5.2.5). */
type ListScope = {
  /** Only certificates with one of these distribution points are covered. Null: all are covered. */
  readonly points: readonly string[] | null
  readonly only: 'authorities' | 'ends' | null
}

/**
 * Parses the lists in an attacker-controlled file: one list in DER, or PEM with one or more blocks.
 * Each must be a complete and direct version 2 list of RFC 5280 section 5, signed by ECDSA with the
 * curve's hash. Refuses unknown critical extensions. `source` names the file. Throws
 * RevocationListError.
 */
export function parseLists(
  file: Uint8Array,
  source: string,
  curve: EcdsaCurve = P384,
): readonly ParsedList[] {
  const signer = { name: `ECDSA with ${curve.hash}`, isAlgorithm: isAlgorithmOf(curve) }
  if (file[0] === DER_TAGS.sequence) return [parseList(file.slice(), source, signer)]
  const text = new TextDecoder().decode(file)
  const blocks = [...text.matchAll(/-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----/g)]
  if (blocks.length === 0) throw malformed(source, 'expected a revocation list in DER or PEM')
  return blocks.map(([, base64 = '']) => parseList(bytesOf(base64, source), source, signer))
}

type ListSigner = { readonly name: string; isAlgorithm(node: DerNode | undefined): boolean }

const DELTA_INDICATOR = '2.5.29.27'
const ISSUING_DISTRIBUTION_POINT = '2.5.29.28'
/** The CRL number and the authority key identifier affect no check. */
const UNDERSTOOD: ReadonlySet<string> = new Set([
  ISSUING_DISTRIBUTION_POINT,
  '2.5.29.20',
  '2.5.29.35',
])
/** An entry's extensions: reason and invalidity date. No reason is accepted. */
const UNDERSTOOD_OF_ENTRY: ReadonlySet<string> = new Set(['2.5.29.21', '2.5.29.24'])

/** Parses one list in DER as parseLists does, for any signature algorithm. */
export function parseList(
  der: Uint8Array<ArrayBuffer>,
  source: string,
  { name, isAlgorithm }: ListSigner,
): ParsedList {
  const [signed, algorithm, signature] = childrenOf(decode(der, source), source)
  const fields = splitFields(signed, source)
  if (signature?.tag !== DER_TAGS.bitString || signature.content[0] !== 0)
    throw malformed(source, 'expected a certificate revocation list (RFC 5280)')
  if (![fields.algorithm, algorithm].every(isAlgorithm))
    throw new RevocationListError('algorithm', {
      source,
      message: `expected a signature by ${name}`,
    })
  const extensions = readExtensions(fields.extensions, source)
  const serials = fields.revoked.map((entry) => serialOf(entry, source))
  if (extensions.has(DELTA_INDICATOR)) throw unsupported(source, 'a whole list, got a delta')
  return {
    source,
    signed: (signed as DerNode).encoding,
    signature: signature.content.subarray(1),
    issuer: fields.issuer,
    serials,
    thisUpdateMs: fields.thisUpdateMs,
    nextUpdateMs: fields.nextUpdateMs,
    scope: scopeOf(extensions.get(ISSUING_DISTRIBUTION_POINT), source),
  }
}

type Fields = {
  readonly algorithm: DerNode | undefined
  readonly issuer: Uint8Array
  readonly thisUpdateMs: number
  readonly nextUpdateMs: number
  readonly revoked: readonly DerNode[]
  readonly extensions: DerNode | undefined
}

const VERSION_2 = 1
const EXTENSIONS_FIELD = 0xa0

/** Splits a TBSCertList (RFC 5280 section 5.1). */
function splitFields(tbs: DerNode | undefined, source: string): Fields {
  const [version, algorithm, issuer, thisUpdate, nextUpdate, ...rest] = childrenOf(tbs, source)
  const isVersion2 =
    version?.tag === DER_TAGS.integer &&
    version.content.length === 1 &&
    version.content[0] === VERSION_2
  const nextUpdateMs = timeOf(nextUpdate)
  if (!isVersion2 || nextUpdateMs === null)
    throw malformed(source, 'expected a list of version 2 that says when the next one comes')
  const revoked = rest[0]?.tag === DER_TAGS.sequence ? rest.shift() : undefined
  const extensions = rest[0]?.tag === EXTENSIONS_FIELD ? rest.shift() : undefined
  const name = issuer === undefined ? null : parseName(issuer)
  const thisUpdateMs = timeOf(thisUpdate)
  if (name === null || thisUpdateMs === null || rest.length > 0)
    throw malformed(source, 'expected a certificate revocation list (RFC 5280)')
  return {
    algorithm,
    issuer: name.encoding,
    thisUpdateMs,
    nextUpdateMs,
    revoked: revoked?.children ?? [],
    extensions,
  }
}

function timeOf(node: DerNode | undefined): number | null {
  const isTime = node?.tag === DER_TAGS.utcTime || node?.tag === DER_TAGS.generalizedTime
  return node && isTime ? decodeTime(node.tag, node.content) : null
}

function isAlgorithmOf({ algorithm }: EcdsaCurve): ListSigner['isAlgorithm'] {
  return (node) => {
    const [type, ...parameters] = node?.tag === DER_TAGS.sequence ? node.children : []
    return parameters.length === 0 && identifierOf(type) === algorithm
  }
}

function identifierOf(node: DerNode | undefined): string | null {
  return node?.tag === DER_TAGS.objectIdentifier ? decodeObjectIdentifier(node.content) : null
}

/** An entry has a serial, a date and perhaps extensions. */
function serialOf(entry: DerNode, source: string): Uint8Array {
  const [serial, date, extensions, ...rest] = childrenOf(entry, source)
  if (serial?.tag !== DER_TAGS.integer || timeOf(date) === null || rest.length > 0)
    throw malformed(source, 'expected entries of a serial and a time')
  readEntries(extensions, UNDERSTOOD_OF_ENTRY, source)
  return serial.content
}

/** The extensions of a list, in its field [0]. */
function readExtensions(field: DerNode | undefined, source: string): ReadonlyMap<string, DerNode> {
  if (field === undefined) return new Map()
  const [sequence, ...rest] = field.children
  if (sequence === undefined || rest.length > 0)
    throw malformed(source, 'expected a sequence of extensions')
  return readEntries(sequence, UNDERSTOOD, source)
}

/** Returns the octet string of each extension, by type. */
function readEntries(
  sequence: DerNode | undefined,
  understood: ReadonlySet<string>,
  source: string,
): ReadonlyMap<string, DerNode> {
  const values = new Map<string, DerNode>()
  for (const extension of sequence === undefined ? [] : childrenOf(sequence, source)) {
    const [type, ...rest] = childrenOf(extension, source)
    const identifier = identifierOf(type)
    const value = rest.pop()
    const [flag, ...more] = rest
    if (
      identifier === null ||
      value?.tag !== DER_TAGS.octetString ||
      more.length > 0 ||
      (flag !== undefined && flag.tag !== DER_TAGS.boolean)
    )
      throw malformed(source, 'expected extensions of a type and a value')
    if (values.has(identifier)) throw malformed(source, 'expected each extension once')
    if (flag?.content[0] === 0xff && !understood.has(identifier))
      throw unsupported(
        source,
        identifier === DELTA_INDICATOR
          ? 'a whole list, got a delta'
          : `no critical extension ${identifier}`,
      )
    values.set(identifier, value)
  }
  return values
}

/** Members of IssuingDistributionPoint, by their tags. */
const POINT_TAGS = {
  distributionPoint: 0xa0,
  onlyEnds: 0x81,
  onlyAuthorities: 0x82,
  someReasons: 0x83,
  indirect: 0x84,
  onlyAttributes: 0x85,
} as const
const POINT_TAGS_KNOWN: ReadonlySet<number> = new Set(Object.values(POINT_TAGS))

function scopeOf(value: DerNode | undefined, source: string): ListScope {
  if (value === undefined) return { points: null, only: null }
  const members = childrenOf(decode(value.content, source), source)
  const has = (tag: number) => members.some((member) => member.tag === tag)
  if (members.some(({ tag }) => !POINT_TAGS_KNOWN.has(tag)))
    throw malformed(source, 'expected an issuing distribution point of RFC 5280')
  if (has(POINT_TAGS.indirect) || has(POINT_TAGS.someReasons) || has(POINT_TAGS.onlyAttributes))
    throw unsupported(source, "a list of all of its issuer's own certificates, for all reasons")
  if (has(POINT_TAGS.onlyAuthorities) && has(POINT_TAGS.onlyEnds))
    throw malformed(source, 'expected one kind of certificates')
  const point = members.find(({ tag }) => tag === POINT_TAGS.distributionPoint)
  const addresses = point === undefined ? null : addressesOf(point)
  if (point !== undefined && addresses === null)
    throw unsupported(source, 'a distribution point with its own address')
  return {
    points: addresses,
    only: has(POINT_TAGS.onlyAuthorities)
      ? 'authorities'
      : has(POINT_TAGS.onlyEnds)
        ? 'ends'
        : null,
  }
}

const FULL_NAME = 0xa0
const URI = 0x86

/** The addresses in a DistributionPointName. Null if it is not a full name. */
function addressesOf({ children }: DerNode): readonly string[] | null {
  const [name, ...rest] = children
  if (name?.tag !== FULL_NAME || rest.length > 0) return null
  return name.children.flatMap(({ tag, content }) => (tag === URI ? [latin1(content)] : []))
}

function childrenOf(node: DerNode | undefined, source: string): readonly DerNode[] {
  if (node?.tag === DER_TAGS.sequence) return node.children
  throw malformed(source, 'expected a certificate revocation list (RFC 5280)')
}

function decode(der: Uint8Array<ArrayBuffer>, source: string): DerNode {
  try {
    return decodeDer(der)
  } catch (fault) {
    if (!(fault instanceof DerError)) throw fault
    throw malformed(source, `expected one list in DER (RFC 5280): ${fault.message}`)
  }
}

function bytesOf(base64: string, source: string): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(decodeBase64(base64.replaceAll(/\s/g, '')))
  } catch {
    throw malformed(source, 'expected base64 in PEM')
  }
}

function malformed(source: string, message: string): RevocationListError {
  return new RevocationListError('malformed', { source, message })
}

function unsupported(source: string, expectation: string): RevocationListError {
  return new RevocationListError('unsupported', { source, message: `expected ${expectation}` })
}

/**
 * `speaks`: the list is verified and applies. `notAfterMs` is the expiry of the covered
 * certificate. `silent`: the reason why the list does not apply.
 */
export type ListOfChain =
  | { readonly kind: 'speaks'; readonly list: RevocationList; readonly notAfterMs: number }
  | { readonly kind: 'silent'; readonly error: RevocationListError }

/**
 * Verifies a list for a chain (DER, root first, leaf last). The list's issuer must be the subject
 * of a CA certificate in the chain. This certificate must be allowed to sign lists, and its key
 * must have signed the list. The list covers the next certificate. Does NOT verify the chain:
 * verifyAttestation does.
 */
export async function findListOfChain(
  parsed: ParsedList,
  ders: readonly Uint8Array<ArrayBuffer>[],
): Promise<ListOfChain> {
  return await findListOfCertificates(parsed, ders.map(tryParse))
}

/** Like findListOfChain, for parsed certificates. A null stands for a refused certificate. */
export async function findListOfCertificates(
  parsed: ParsedList,
  certificates: readonly (Certificate | null)[],
): Promise<ListOfChain> {
  const silent = (code: RevocationListCode, message: string): ListOfChain => ({
    kind: 'silent',
    error: new RevocationListError(code, { source: parsed.source, message }),
  })
  const at = certificates.findIndex(
    (certificate, index) =>
      certificate !== null &&
      index < certificates.length - 1 &&
      equalBytes(certificate.subject.encoding, parsed.issuer),
  )
  const [issuer, issued] = [certificates[at], certificates[at + 1]]
  if (!issuer || !issued)
    return silent('foreign', "expected a list of an issuer in the document's chain")
  if (!issuer.keyUsage?.cRLSign)
    return silent(
      'key_usage',
      `expected ${issuer.subject.text} to be allowed to sign lists (cRLSign)`,
    )
  if (!(await isSignedBy(parsed, issuer)))
    return silent(
      'signature',
      `expected a signature by ${issuer.subject.text}, as it is in the document's chain`,
    )
  if (!coversCertificate(parsed, issued, at + 2 < certificates.length))
    return silent(
      'scope',
      `expected a list that is about ${issued.subject.text}: it is for other certificates`,
    )
  const { issuer: name, serials, thisUpdateMs, nextUpdateMs } = parsed
  const list = { issuer: name, issuerKey: issuer.point, serials, thisUpdateMs, nextUpdateMs }
  return { kind: 'speaks', list, notAfterMs: issued.notAfterMs }
}

/** Null if verifyAttestation refuses the certificate, and so the whole chain. */
function tryParse(der: Uint8Array<ArrayBuffer>): Certificate | null {
  try {
    return parseCertificate(der, 'certificate')
  } catch (fault) {
    if (fault instanceof AttestationError) return null
    throw fault
  }
}

async function isSignedBy(
  { signed, signature }: ParsedList,
  certificate: Certificate,
): Promise<boolean> {
  const { curve } = certificate
  const key = await importKeyOf(certificate)
  if (key === null) return false
  try {
    const pair = parseCertificateSignature({ signature, where: 'list', curve })
    return await verifyEcdsa({ key, signature: pair, data: signed })
  } catch (fault) {
    // The signature is malformed.
    if (fault instanceof AttestationError) return false
    throw fault
  }
}

/** `isAuthority`: another certificate follows in the chain. */
export function coversCertificate(
  { scope }: ParsedList,
  { distributionPoints }: Pick<Certificate, 'distributionPoints'>,
  isAuthority: boolean,
): boolean {
  if (scope.only !== null && (scope.only === 'authorities') !== isAuthority) return false
  if (scope.points === null) return true
  const points = distributionPoints?.tag === DER_TAGS.sequence ? distributionPoints.children : []
  const addresses = points.flatMap(({ tag, children: [name] }) =>
    tag === DER_TAGS.sequence && name?.tag === POINT_TAGS.distributionPoint
      ? (addressesOf(name) ?? [])
      : [],
  )
  return addresses.some((address) => scope.points?.includes(address))
}
