import { createHash, X509Certificate } from 'node:crypto'
import { rootCertificates } from 'node:tls'
import { FormatError } from '#attestation/errors.ts'

/** The CAs for the TLS of providers. They are part of the boot configuration. */
export type TrustedCas = {
  /** PEM, one certificate after the other. */
  readonly pem: string
  /** SHA-256 (hex) of the UTF-8 bytes of `pem`. */
  readonly sha256: string
}

/**
 * Returns the CA set that Node.js contains (Mozilla's), in its order, with a newline after each
 * certificate. The same version of Node.js always gives the same digest.
 */
export function bundledCas(): TrustedCas {
  return digestPem(rootCertificates.map((certificate) => `${certificate}\n`).join(''))
}

/**
 * Returns the CA set of a PEM file, with the file's exact bytes. Throws FormatError
 * `invalid_ca_file` if the file has no certificates, or has a certificate that cannot be read. Does
 * NOT check that the certificates are CAs, or valid now: TLS checks this.
 */
export function parseCas(bytes: Uint8Array): TrustedCas {
  const pem = Buffer.from(bytes).toString('utf8')
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? []
  const marks = pem.match(/-----BEGIN /g) ?? []
  if (certificates.length === 0 || certificates.length !== marks.length)
    throw new FormatError('invalid_ca_file', 'expected PEM certificates and nothing else')
  const unreadable = certificates.findIndex((certificate) => !isCertificate(certificate))
  if (unreadable >= 0)
    throw new FormatError(
      'invalid_ca_file',
      `expected X.509 certificates; number ${unreadable + 1} cannot be read`,
    )
  return { pem, sha256: createHash('sha256').update(bytes).digest('hex') }
}

function digestPem(pem: string): TrustedCas {
  return { pem, sha256: createHash('sha256').update(pem).digest('hex') }
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).raw.length > 0
  } catch {
    return false
  }
}
