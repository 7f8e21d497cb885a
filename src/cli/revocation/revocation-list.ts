import { webcrypto } from 'node:crypto'
import { type AsnType, fromBER, Sequence } from 'asn1js'
import {
  CertificateRevocationList,
  CRLDistributionPoints,
  CryptoEngine,
  type Extension,
  type GeneralName,
  IssuingDistributionPoint,
  Certificate as PkiCertificate,
  type RevokedCertificate,
} from 'pkijs'
import { decodeBase64, equalBytes } from '../../../attestation/bytes.ts'
import { AttestationError } from '../../../attestation/nitro/attestation-error.ts'
import { type Certificate, parseCertificate } from '../../../attestation/nitro/certificate.ts'
import type { RevocationList } from '../../../attestation/nitro/revocation-list.ts'
import { CliError, orNull } from '../faults.ts'
import { printable } from '../printable.ts'

/** A revocation list as it was read: its form is checked, and nothing of it is verified. */
export type ParsedList = {
  /** File or URL, for messages. */
  readonly source: string
  /** For the signature. */
  readonly list: CertificateRevocationList
  /** DER of the issuer's name. */
  readonly issuer: Uint8Array
  readonly serials: readonly Uint8Array[]
  /** Unix milliseconds. */
  readonly thisUpdateMs: number
  readonly nextUpdateMs: number
  readonly scope: ListScope
}

/** Which of its issuer's certificates a list is about (RFC 5280 section 5.2.5). */
type ListScope = {
  /** Addresses that a certificate must name one of; null: any certificate. */
  readonly points: readonly string[] | null
  readonly only: 'authorities' | 'ends' | null
}

/**
 * Gives the lists in a file: one in DER, or PEM with one or more blocks. Each is a version 2 list
 * of RFC 5280 section 5, signed by ECDSA with SHA-384, whole, direct, and with no critical
 * extension that is not understood here. Throws RevocationListError.
 */
export function parseLists(file: Uint8Array, source: string): readonly ParsedList[] {
  if (file[0] === DER_SEQUENCE) return [parseList(file, source)]
  const text = new TextDecoder().decode(file)
  const blocks = [...text.matchAll(/-----BEGIN X509 CRL-----([^-]*)-----END X509 CRL-----/g)]
  if (blocks.length === 0) throw malformed(source, 'expected a revocation list in DER or PEM')
  return blocks.map(([, base64 = '']) => parseList(bytesOf(base64, source), source))
}

const DER_SEQUENCE = 0x30
const ECDSA_WITH_SHA384 = '1.2.840.10045.4.3.3'
const VERSION_2 = 1

const DELTA_INDICATOR = '2.5.29.27'
const ISSUING_DISTRIBUTION_POINT = '2.5.29.28'
/**
 * Issuing distribution point, CRL number, authority key identifier: what is known, or changes
 * nothing.
 */
const UNDERSTOOD: ReadonlySet<string> = new Set([
  ISSUING_DISTRIBUTION_POINT,
  '2.5.29.20',
  '2.5.29.35',
])
/** Of an entry: reason and date. Whatever the reason, the certificate is not used. */
const UNDERSTOOD_OF_ENTRY: ReadonlySet<string> = new Set(['2.5.29.21', '2.5.29.24'])

function parseList(der: Uint8Array, source: string): ParsedList {
  const { list, issuer } = decodeList(der, source)
  const { nextUpdate, crlExtensions, revokedCertificates: revoked = [] } = list
  if (list.version !== VERSION_2 || nextUpdate === undefined)
    throw malformed(source, 'expected a list of version 2 that says when the next one comes')
  if (
    [list.signature, list.signatureAlgorithm].some(
      ({ algorithmId }) => algorithmId !== ECDSA_WITH_SHA384,
    )
  )
    throw new RevocationListError('algorithm', {
      source,
      message: 'expected a signature by ECDSA with SHA-384',
    })
  const extensions = crlExtensions?.extensions ?? []
  checkExtensions(extensions, UNDERSTOOD, source)
  for (const entry of revoked)
    checkExtensions(entry.crlEntryExtensions?.extensions ?? [], UNDERSTOOD_OF_ENTRY, source)
  if (extensions.some(({ extnID }) => extnID === DELTA_INDICATOR))
    throw unsupported(source, 'a whole list, got a delta')
  return {
    source,
    list,
    issuer,
    serials: revoked.map(serialOf),
    thisUpdateMs: list.thisUpdate.value.getTime(),
    nextUpdateMs: nextUpdate.value.getTime(),
    scope: scopeOf(extensions, source),
  }
}

function decodeList(
  der: Uint8Array,
  source: string,
): { readonly list: CertificateRevocationList; readonly issuer: Uint8Array } {
  try {
    const { result, offset } = fromBER(new Uint8Array(der))
    if (offset !== der.length) throw malformed(source, 'expected one list, and nothing after it')
    const issuer = issuerOf(result)
    const list = new CertificateRevocationList({ schema: result })
    return { list, issuer }
  } catch (fault) {
    if (fault instanceof RevocationListError) throw fault
    throw malformed(source, 'expected a certificate revocation list (RFC 5280)')
  }
}

/** The name as it stands there: tbsCertList is version, algorithm, issuer, and so on. */
function issuerOf(list: AsnType): Uint8Array {
  const [contents] = list instanceof Sequence ? list.valueBlock.value : []
  const [, , issuer] = contents instanceof Sequence ? contents.valueBlock.value : []
  if (!(issuer instanceof Sequence)) throw new TypeError('expected a name in the third place')
  return new Uint8Array(issuer.valueBeforeDecodeView)
}

function checkExtensions(
  extensions: readonly Extension[],
  understood: ReadonlySet<string>,
  source: string,
): void {
  const types = extensions.map(({ extnID }) => extnID)
  if (new Set(types).size < types.length) throw malformed(source, 'expected each extension once')
  const unknown = extensions.find(({ critical, extnID }) => critical && !understood.has(extnID))
  if (unknown === undefined) return
  const what =
    unknown.extnID === DELTA_INDICATOR
      ? 'a whole list, got a delta'
      : `no critical extension ${unknown.extnID}`
  throw unsupported(source, what)
}

function scopeOf(extensions: readonly Extension[], source: string): ListScope {
  const extension = extensions.find(({ extnID }) => extnID === ISSUING_DISTRIBUTION_POINT)
  if (extension === undefined) return { points: null, only: null }
  const point: unknown = extension.parsedValue
  if (!(point instanceof IssuingDistributionPoint))
    throw malformed(source, 'expected an issuing distribution point of RFC 5280')
  const { indirectCRL, onlySomeReasons, onlyContainsAttributeCerts, distributionPoint } = point
  if (indirectCRL || onlySomeReasons !== undefined || onlyContainsAttributeCerts)
    throw unsupported(source, "a list of all of its issuer's own certificates, for all reasons")
  const { onlyContainsCACerts, onlyContainsUserCerts } = point
  if (onlyContainsCACerts && onlyContainsUserCerts)
    throw malformed(source, 'expected one kind of certificates')
  if (distributionPoint !== undefined && !Array.isArray(distributionPoint))
    throw unsupported(source, 'a distribution point with an address of its own')
  return {
    points: distributionPoint === undefined ? null : addressesOf(distributionPoint),
    only: onlyContainsCACerts ? 'authorities' : onlyContainsUserCerts ? 'ends' : null,
  }
}

const URI = 6

/** The addresses among general names. */
function addressesOf(names: readonly GeneralName[]): readonly string[] {
  return names.flatMap(({ type, value }) =>
    type === URI && typeof value === 'string' ? [value] : [],
  )
}

function serialOf({ userCertificate }: RevokedCertificate): Uint8Array {
  return new Uint8Array(userCertificate.valueBlock.valueHexView)
}

function bytesOf(base64: string, source: string): Uint8Array {
  try {
    return decodeBase64(base64.replaceAll(/\s/g, ''))
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
 * What a list says of a chain, and when the certificate that it is about ends; or why it says
 * nothing.
 */
export type ListOfChain =
  | { readonly kind: 'speaks'; readonly list: RevocationList; readonly notAfterMs: number }
  | { readonly kind: 'silent'; readonly error: RevocationListError }

/**
 * Verifies a list against a chain (DER, root first, leaf last). A CA certificate of the chain has
 * the list's issuer as its subject, may sign lists, and signed this one; the list is about the
 * certificate that follows. Does NOT verify the chain: verifyAttestation does.
 */
export async function findListOfChain(
  parsed: ParsedList,
  ders: readonly Uint8Array<ArrayBuffer>[],
): Promise<ListOfChain> {
  const silent = (code: RevocationListCode, message: string): ListOfChain => ({
    kind: 'silent',
    error: new RevocationListError(code, { source: parsed.source, message }),
  })
  const certificates = ders.slice(0, -1).map(tryParse)
  const at = certificates.findIndex(
    (certificate) =>
      certificate !== null && equalBytes(certificate.subject.encoding, parsed.issuer),
  )
  const [issuer, issuerDer, issuedDer] = [certificates[at], ders[at], ders[at + 1]]
  const issued = issuedDer === undefined ? null : tryParse(issuedDer)
  if (!issuer || issuerDer === undefined || issuedDer === undefined || issued === null)
    return silent('foreign', "expected a list of an issuer in the document's chain")
  const [signer, subject] = [PkiCertificate.fromBER(issuerDer), PkiCertificate.fromBER(issuedDer)]
  if (!maySignLists(signer))
    return silent(
      'key_usage',
      `expected ${issuer.subject.text} to be allowed to sign lists (cRLSign)`,
    )
  if (!(await isSignedBy(parsed, signer)))
    return silent(
      'signature',
      `expected a signature by ${issuer.subject.text}, as it is in the document's chain`,
    )
  if (!isAbout(parsed, subject, at + 2 < ders.length))
    return silent(
      'scope',
      `expected a list that is about ${issued.subject.text}: it is for other certificates`,
    )
  const { issuer: name, serials, thisUpdateMs, nextUpdateMs } = parsed
  const list = { issuer: name, issuerKey: issuer.point, serials, thisUpdateMs, nextUpdateMs }
  return { kind: 'speaks', list, notAfterMs: issued.notAfterMs }
}

const engine = new CryptoEngine({ name: 'node', crypto: webcrypto })

const KEY_USAGE = '2.5.29.15'
const CRL_DISTRIBUTION_POINTS = '2.5.29.31'
/** The seventh bit of keyUsage, from the highest. */
const CRL_SIGN = 0x02

/** Null of what is no certificate by the library's rules: it will refuse the whole chain. */
function tryParse(der: Uint8Array<ArrayBuffer>): Certificate | null {
  return orNull(() => parseCertificate(der, 'certificate'), AttestationError)
}

function maySignLists({ extensions = [] }: PkiCertificate): boolean {
  const usage: unknown = extensions.find(({ extnID }) => extnID === KEY_USAGE)?.parsedValue
  const bits = hasBits(usage) ? usage.valueBlock.valueHexView : new Uint8Array()
  return ((bits[0] ?? 0) & CRL_SIGN) !== 0
}

async function isSignedBy(
  { list }: ParsedList,
  issuerCertificate: PkiCertificate,
): Promise<boolean> {
  try {
    return await list.verify({ issuerCertificate }, engine)
  } catch {
    // A signature that is none, for instance.
    return false
  }
}

/** `isAuthority`: another certificate follows it. */
function isAbout(
  { scope }: ParsedList,
  { extensions = [] }: PkiCertificate,
  isAuthority: boolean,
): boolean {
  if (scope.only !== null && (scope.only === 'authorities') !== isAuthority) return false
  if (scope.points === null) return true
  const named: unknown = extensions.find(
    ({ extnID }) => extnID === CRL_DISTRIBUTION_POINTS,
  )?.parsedValue
  if (!(named instanceof CRLDistributionPoints)) return false
  const addresses = named.distributionPoints.flatMap(({ distributionPoint }) =>
    Array.isArray(distributionPoint) ? addressesOf(distributionPoint) : [],
  )
  return addresses.some((address) => scope.points?.includes(address))
}

type Bits = { readonly valueBlock: { readonly valueHexView: Uint8Array } }

function hasBits(value: unknown): value is Bits {
  if (typeof value !== 'object' || value === null || !('valueBlock' in value)) return false
  const { valueBlock } = value
  return (
    typeof valueBlock === 'object' &&
    valueBlock !== null &&
    'valueHexView' in valueBlock &&
    valueBlock.valueHexView instanceof Uint8Array
  )
}

/** What is wrong with a revocation list, one code for each check. */
type RevocationListCode =
  | 'malformed' //      no list in DER or PEM, or not of version 2 with an end
  | 'algorithm' //      not signed by ECDSA with SHA-384
  | 'unsupported' //    a delta, an indirect list, one of some reasons, or a critical extension that is not understood
  | 'not_yet_valid' //  begins later than now
  | 'foreign' //        no CA certificate in the document's chain is its issuer
  | 'signature' //      the issuer in the chain did not sign it
  | 'key_usage' //      the issuer may not sign lists
  | 'scope' //          it is not about the certificate that its issuer issued here
  | 'unused' //         of several documents, it says nothing of any

/** A revocation list that cannot be used: it is told, and never left out in silence. */
export class RevocationListError extends CliError {
  readonly code: RevocationListCode

  constructor(
    code: RevocationListCode,
    { source, message }: { readonly source: string; readonly message: string },
  ) {
    super(`--crl ${printable(source)}: ${message}`)
    this.code = code
  }
}
