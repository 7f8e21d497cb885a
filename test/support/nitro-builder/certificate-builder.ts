import { distinguishedName } from '../../../src/local/tee/certificate-builder.ts'

export {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  ECDSA_SHA384,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  publicKeyInfo,
  type SigningKey as KeyPair,
  signWith,
  VERSION_3,
  validityOf,
} from '../../../src/local/tee/certificate-builder.ts'

/** A name with the attributes that AWS uses. */
export function nameOf(commonName: string): Uint8Array<ArrayBuffer> {
  return distinguishedName(commonName, { organisation: 'Amazon', unit: 'AWS' })
}
