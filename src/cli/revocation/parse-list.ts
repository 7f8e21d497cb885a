import { type AsnType, fromBER, Sequence } from 'asn1js'
import {
  CertificateRevocationList,
  type Extension,
  type GeneralName,
  IssuingDistributionPoint,
  type RevokedCertificate,
} from 'pkijs'
import { decodeBase64 } from '../../../attestation/bytes.ts'
import { RevocationListError } from './revocation-list-error.ts'

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
const UNDERSTOOD: ReadonlySet<string> = new Set([ISSUING_DISTRIBUTION_POINT, '2.5.29.20', '2.5.29.35'])
/** Of an entry: reason and date. Whatever the reason, the certificate is not used. */
const UNDERSTOOD_OF_ENTRY: ReadonlySet<string> = new Set(['2.5.29.21', '2.5.29.24'])

function parseList(der: Uint8Array, source: string): ParsedList {
  const { list, issuer } = decodeList(der, source)
  const { nextUpdate, crlExtensions, revokedCertificates: revoked = [] } = list
  if (list.version !== VERSION_2 || nextUpdate === undefined)
    throw malformed(source, 'expected a list of version 2 that says when the next one comes')
  if ([list.signature, list.signatureAlgorithm].some(({ algorithmId }) => algorithmId !== ECDSA_WITH_SHA384))
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
export function addressesOf(names: readonly GeneralName[]): readonly string[] {
  return names.flatMap(({ type, value }) => (type === URI && typeof value === 'string' ? [value] : []))
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
