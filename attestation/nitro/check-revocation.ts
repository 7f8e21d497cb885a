import { equalBytes } from '../bytes.ts'
import { hasOwnMembersAlone, ownMembers } from '../own-members.ts'
import { AttestationError } from './attestation-error.ts'
import type { Certificate } from './certificate.ts'
import { P384, pointBytes } from './ecdsa.ts'

/**
 * The content of a certificate revocation list (RFC 5280 section 5). The caller must have verified
 * that the issuer's key signed the list, that the extensions are understood, that the list is whole
 * (neither a delta nor indirect), and that it covers the chain's certificate from this issuer. This
 * folder verifies none of this.
 */
export type RevocationList = {
  /** DER of the issuer's name. */
  readonly issuer: Uint8Array
  /**
   * The key that signed the list: an uncompressed point (AWS: on P-384, 97 bytes). Several keys may
   * have the same issuer name.
   */
  readonly issuerKey: Uint8Array
  /** Serials of revoked certificates. Big-endian. Leading zeros are ignored. */
  readonly serials: readonly Uint8Array[]
  /** Unix milliseconds, inclusive. */
  readonly thisUpdateMs: number
  readonly nextUpdateMs: number
}

export function isRevocationList(value: unknown): value is RevocationList {
  if (!hasOwnMembersAlone(value)) return false
  const { issuer, issuerKey, serials, thisUpdateMs, nextUpdateMs } = ownMembers(value)
  return (
    issuer instanceof Uint8Array &&
    issuerKey instanceof Uint8Array &&
    issuerKey.length === pointBytes(P384) &&
    Array.isArray(serials) &&
    Array.from(serials).every((serial) => serial instanceof Uint8Array) &&
    isTime(thisUpdateMs) &&
    isTime(nextUpdateMs)
  )
}

/**
 * Refuses a chain (root first) if a list names one of its certificates (rule 19). Refuses a list
 * that no CA key in the chain signed, or that is not valid. In current mode, a list is valid
 * between its two updates. In historical mode, a list may be newer than the document, but its
 * `thisUpdate` must not be after the end of the covered certificate, because authorities remove
 * expired certificates from lists. Throws AttestationError. Does NOT prove anything about
 * certificates whose issuer has no list here.
 */
export function checkRevocationLists(
  certificates: readonly Certificate[],
  {
    lists,
    mode,
    atMs,
  }: {
    readonly lists: readonly RevocationList[]
    readonly mode: 'current' | 'historical'
    readonly atMs: number
  },
): void {
  for (const list of lists) {
    const at = certificates.findIndex((certificate) => isIssuer(certificate, list))
    const issued = at < 0 ? undefined : certificates[at + 1]
    if (issued === undefined)
      throw new AttestationError(
        'revocation_list_foreign',
        'expected revocation lists of issuers in the chain',
      )
    const { where, serial, notAfterMs } = issued
    const [endMs, end] =
      mode === 'current' ? [atMs, 'the time'] : [notAfterMs, 'the certificate expired']
    if (list.thisUpdateMs > endMs)
      throw new AttestationError(
        'revocation_list_not_yet_valid',
        `the revocation list for ${where} begins after ${end}`,
      )
    if (list.nextUpdateMs < atMs)
      throw new AttestationError(
        'revocation_list_expired',
        `the revocation list for ${where} has expired`,
      )
    if (list.serials.some((one) => equalBytes(trimSerial(one), trimSerial(serial))))
      throw new AttestationError(
        'certificate_revoked',
        `${where} is revoked, says its issuer's list`,
      )
  }
}

/** Serials are numbers, so leading zeros do not count. */
export function trimSerial(serial: Uint8Array): Uint8Array {
  const start = serial.findIndex((byte) => byte !== 0)
  return start < 0 ? new Uint8Array() : serial.subarray(start)
}

/** ECMAScript's largest time, milliseconds before or after 1970. */
const TIME_MS_MAX = 8_640_000_000_000_000

function isTime(value: unknown): boolean {
  return typeof value === 'number' && Math.abs(value) <= TIME_MS_MAX
}

function isIssuer({ subject, point }: Certificate, { issuer, issuerKey }: RevocationList): boolean {
  return equalBytes(subject.encoding, issuer) && equalBytes(point, issuerKey)
}
