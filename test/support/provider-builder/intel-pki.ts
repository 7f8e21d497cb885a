import { createHash } from 'node:crypto'
import {
  createIntelPki,
  type IntelCertificate,
  PCE_SVN,
  PLATFORM_SVNS,
  pckExtensions,
  SERIALS,
  sgxExtension,
} from '#src/local/tee/intel-pki.ts'
import { buildList, type ListParts } from '#src/local/x509/revocation-list.ts'
import { buildCertificate, type CertificateParts } from '../nitro-builder/certificate-builder.ts'
import { LIST_PERIOD } from '../nitro-builder/crl-builder.ts'
import { MADE_AT } from '../nitro-builder/development-pki.ts'

export { type IntelCertificate, PCE_SVN, PLATFORM_SVNS, pckExtensions, SERIALS, sgxExtension }

const YEAR_MS = 365 * 24 * 3_600_000

const pki = createIntelPki({
  from: new Date(MADE_AT.getTime() - YEAR_MS),
  to: new Date(MADE_AT.getTime() + YEAR_MS),
})

/** The private and public key of a certificate. */
export const intelKey = pki.key

/** DER of a certificate, with changed parts. Certificates without a change are made once. */
export function intelCertificate(
  name: IntelCertificate,
  changed?: Partial<CertificateParts>,
): Uint8Array<ArrayBuffer> {
  if (changed === undefined) return pki.certificate(name)
  return buildCertificate({ ...pki.partsOf(name), ...changed })
}

/** SHA-256 of the development root. Nothing trusts it but tests that pass it. */
export const DEVELOPMENT_INTEL_ROOT = new Uint8Array(
  createHash('sha256').update(intelCertificate('root')).digest(),
)

/** DER of a revocation list by a CA, with changed parts. */
export function intelList(
  name: 'root' | 'platformCa',
  changed: Partial<ListParts> = {},
): Uint8Array<ArrayBuffer> {
  return buildList({ ...pki.listOf(name, LIST_PERIOD), ...changed })
}
