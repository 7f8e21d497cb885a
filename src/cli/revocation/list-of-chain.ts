import { webcrypto } from 'node:crypto'
import { CRLDistributionPoints, CryptoEngine, Certificate as PkiCertificate } from 'pkijs'
import { equalBytes } from '../../../attestation/bytes.ts'
import { AttestationError } from '../../../attestation/nitro/attestation-error.ts'
import { type Certificate, parseCertificate } from '../../../attestation/nitro/certificate.ts'
import type { RevocationList } from '../../../attestation/nitro/revocation-list.ts'
import { addressesOf, type ParsedList } from './parse-list.ts'
import { type RevocationListCode, RevocationListError } from './revocation-list-error.ts'

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
    (certificate) => certificate !== null && equalBytes(certificate.subject.encoding, parsed.issuer),
  )
  const [issuer, issuerDer, issuedDer] = [certificates[at], ders[at], ders[at + 1]]
  const issued = issuedDer === undefined ? null : tryParse(issuedDer)
  if (!issuer || issuerDer === undefined || issuedDer === undefined || issued === null)
    return silent('foreign', "expected a list of an issuer in the document's chain")
  const [signer, subject] = [PkiCertificate.fromBER(issuerDer), PkiCertificate.fromBER(issuedDer)]
  if (!maySignLists(signer))
    return silent('key_usage', `expected ${issuer.subject.text} to be allowed to sign lists (cRLSign)`)
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
  try {
    return parseCertificate(der, 'certificate')
  } catch (fault) {
    if (fault instanceof AttestationError) return null
    throw fault
  }
}

function maySignLists({ extensions = [] }: PkiCertificate): boolean {
  const usage: unknown = extensions.find(({ extnID }) => extnID === KEY_USAGE)?.parsedValue
  const bits = hasBits(usage) ? usage.valueBlock.valueHexView : new Uint8Array()
  return ((bits[0] ?? 0) & CRL_SIGN) !== 0
}

async function isSignedBy({ list }: ParsedList, issuerCertificate: PkiCertificate): Promise<boolean> {
  try {
    return await list.verify({ issuerCertificate }, engine)
  } catch {
    // A signature that is none, for instance.
    return false
  }
}

/** `isAuthority`: another certificate follows it. */
function isAbout({ scope }: ParsedList, { extensions = [] }: PkiCertificate, isAuthority: boolean): boolean {
  if (scope.only !== null && (scope.only === 'authorities') !== isAuthority) return false
  if (scope.points === null) return true
  const named: unknown = extensions.find(({ extnID }) => extnID === CRL_DISTRIBUTION_POINTS)?.parsedValue
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
