import { encodeName } from '#src/local/x509/certificate-builder.ts'

export {
  authorityConstraints,
  buildCertificate,
  type CertificateParts,
  certificateParts,
  ECDSA_SHA256,
  ECDSA_SHA384,
  extension,
  generateKey,
  KEY_USAGE_BITS,
  keyUsage,
  leafConstraints,
  makeAuthority,
  publicKeyInfo,
  type SigningKey as KeyPair,
  signWith,
  toPem,
  VERSION_3,
  validityOf,
} from '#src/local/x509/certificate-builder.ts'

/** A name with the attributes that AWS uses. */
export function nameOf(commonName: string): Uint8Array<ArrayBuffer> {
  return encodeName(['C', 'US'], ['O', 'Amazon'], ['OU', 'AWS'], ['CN', commonName])
}
