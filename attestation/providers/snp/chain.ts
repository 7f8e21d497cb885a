import { encodeHex, sha256 } from '../../bytes.ts'
import { type CertificateFields, pointOf, readCertificate } from '../../nitro/certificate.ts'
import { checkAuthority, checkIssuer, checkValidity, isPinned } from '../../nitro/chain.ts'
import { importPoint, P384, verifyEcdsa } from '../../nitro/ecdsa.ts'
import { asProviderFault } from '../provider-chain.ts'
import type { SnpRoots } from './policy.ts'
import type { SnpReport } from './report.ts'
import { checkRsaKey, isPssSha384, verifyPss } from './rsa-pss.ts'
import { refuseReport } from './snp-rules.ts'
import { SNP_PRODUCTS, type SnpProduct } from './tcb.ts'
import { isAmdExtension } from './vek-claims.ts'

/** Each certificate is DER. */
export type SnpCertificates = {
  /** For the key that signed the report: a VCEK or a VLEK. */
  readonly vek: Uint8Array
  /** AMD's intermediate authority: the ASK, or the ASVK of VLEKs. */
  readonly ask: Uint8Array
  /** AMD's root for the product. */
  readonly ark: Uint8Array
}

/** Form and names of the chain are correct. Its signatures are not verified yet. */
export type SnpChain = {
  readonly vek: CertificateFields
  readonly ask: CertificateFields
  readonly ark: CertificateFields
  readonly point: Uint8Array<ArrayBuffer>
  readonly rootProduct: SnpProduct
}

/** AMD's largest certificate has 1,639 bytes. */
const CERTIFICATE_BYTES_MAX = 4096

/**
 * Reads the chain from `vek` to a trusted ARK. All certificates must be valid at `atMs` (rules 5 to
 * 9). Verifies no signature: see verifySnpLinks. Throws ProviderEvidenceError.
 */
export async function readSnpChain(
  given: SnpCertificates,
  {
    signer,
    roots,
    atMs,
  }: Pick<SnpReport, 'signer'> & { readonly roots: SnpRoots; readonly atMs: number },
): Promise<SnpChain> {
  const [der, askDer] = [copyOf(given.ark, 'ark'), copyOf(given.ask, 'ask')]
  const fingerprint = sha256(der)
  const rootProduct = productOfRoot(fingerprint, roots)
  return await asProviderFault(() => {
    const ark = readRoot(der, fingerprint)
    const ask = readAuthority(askDer, 'ask')
    const vek = readSigned(copyOf(given.vek, 'vek'), 'vek')
    const point = pointOf(vek.publicKey, 'vek', P384)
    const certificates = [ark, ask, vek]
    checkIssuer(ask, { parent: ark, certificates })
    checkIssuer(vek, { parent: ask, certificates })
    checkNames({ ask, vek }, { signer, rootProduct })
    checkAuthority(ark, { following: 1 })
    checkAuthority(ask, { following: 0 })
    checkEnd(vek)
    checkValidity(certificates, { atMs, skewMs: 0 })
    return { vek, ask, ark, point, rootProduct }
  })
}

/** Rule 10. Throws ProviderEvidenceError. */
export async function verifySnpLinks({ vek, ask, ark }: SnpChain): Promise<void> {
  const links = [
    { certificate: ask, issuer: ark },
    { certificate: vek, issuer: ask },
  ]
  const held = await Promise.all(
    links.map(({ certificate, issuer }) => verifyPss(issuer, certificate)),
  )
  const broken = links[held.indexOf(false)]
  if (broken === undefined) return
  const message = `${broken.certificate.where}: expected a signature by the certificate above it`
  throw refuseReport('certificate_signature_invalid', message)
}

/** Rule 12. The promise never rejects. */
export async function isSignedByChain(
  { signed: data, signature }: SnpReport,
  { point }: Pick<SnpChain, 'point'>,
): Promise<boolean> {
  const key = await importPoint(point, P384)
  return key !== null && (await verifyEcdsa({ key, signature, data }))
}

function copyOf(der: Uint8Array, where: string): Uint8Array<ArrayBuffer> {
  if (der.length >= 1 && der.length <= CERTIFICATE_BYTES_MAX) return new Uint8Array(der)
  const message = `${where}: expected 1 to ${CERTIFICATE_BYTES_MAX} bytes`
  throw refuseReport('certificate_size', message)
}

function productOfRoot(fingerprint: Uint8Array, roots: SnpRoots): SnpProduct {
  const product = SNP_PRODUCTS.find((one) => isPinned(fingerprint, roots[one] ?? []))
  if (product === undefined) throw refuseReport('root_untrusted', 'expected a trusted ARK')
  return product
}

/** Caches roots by fingerprint, because policies name few roots and many chains share them. */
const parsedRoots = new Map<string, CertificateFields>()

function readRoot(der: Uint8Array<ArrayBuffer>, fingerprint: Uint8Array): CertificateFields {
  const name = encodeHex(fingerprint)
  const root = parsedRoots.get(name) ?? readAuthority(der, 'ark')
  parsedRoots.set(name, root)
  return root
}

function readAuthority(der: Uint8Array<ArrayBuffer>, where: string): CertificateFields {
  const certificate = readSigned(der, where)
  checkRsaKey(certificate.publicKey, where)
  return certificate
}

function readSigned(der: Uint8Array<ArrayBuffer>, where: string): CertificateFields {
  const certificate = readCertificate(der, where, { isOpaque })
  if (!isPssSha384(certificate.algorithm)) {
    const message = `${where}: expected RSASSA-PSS with SHA-384 and 48 bytes of salt`
    throw refuseReport('certificate_algorithm', message)
  }
  const usage = certificate.opaque.get(KEY_USAGE)
  const keyUsage = usage === undefined ? null : KEY_USAGES[encodeHex(usage)]
  if (keyUsage === undefined)
    throw refuseReport('certificate_der', `${where}: expected a keyUsage as AMD writes it`)
  return { ...certificate, keyUsage }
}

const KEY_USAGE = '2.5.29.15'

function isOpaque(type: string): boolean {
  return type === KEY_USAGE || isAmdExtension(type)
}

const NO_USAGE = { digitalSignature: false, keyCertSign: false, cRLSign: false }

/** By the extension's bytes (hex). AMD's ASKs write a zero bit at the end, which DER forbids. */
const KEY_USAGES: Readonly<Record<string, CertificateFields['keyUsage']>> = {
  '03020106': { ...NO_USAGE, keyCertSign: true, cRLSign: true },
  '03020204': { ...NO_USAGE, keyCertSign: true },
  '03020104': { ...NO_USAGE, keyCertSign: true },
  '03020102': { ...NO_USAGE, cRLSign: true },
  '03020780': { ...NO_USAGE, digitalSignature: true },
}

/** The authority's name is SEV-PRODUCT for a VCEK, and SEV-VLEK-PRODUCT for a VLEK. */
function checkNames(
  { ask, vek }: Pick<SnpChain, 'ask' | 'vek'>,
  { signer, rootProduct }: Pick<SnpReport, 'signer'> & Pick<SnpChain, 'rootProduct'>,
): void {
  const authority = signer === 'VCEK' ? `SEV-${rootProduct}` : `SEV-VLEK-${rootProduct}`
  if (vek.subject.commonName !== `SEV-${signer}` || ask.subject.commonName !== authority)
    throw refuseReport('certificate_name', `expected a SEV-${signer} by ${authority}`)
}

/** AMD's leaves have neither of these two extensions. */
function checkEnd({ basicConstraints, keyUsage }: CertificateFields): void {
  if (basicConstraints?.ca) throw refuseReport('leaf_is_ca', 'vek: expected no CA certificate')
  if (keyUsage !== null && !keyUsage.digitalSignature)
    throw refuseReport('leaf_key_usage', 'vek: expected keyUsage with digitalSignature, or none')
}
