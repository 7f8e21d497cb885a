import { type CertificateParts, publicKeyInfo } from '../nitro-builder/certificate-builder.ts'
import { objectIdentifier, sequence } from '../nitro-builder/der-encoder.ts'
import { buildChain, keyAt, partsOf } from '../nitro-builder/development-pki.ts'
import { documentOf } from './chain-documents.ts'

/**
 * A document whose certificate at `level` (0 root to 4 leaf) is altered, with everything else as it
 * should be.
 */
export function altered(level: number, parts: Partial<CertificateParts>): Uint8Array {
  return documentOf(buildChain({ level, parts }))
}

/** A document whose certificate at `level` has these extensions in place of its own. */
export const extended = (level: number, ...extensions: readonly Uint8Array[]) =>
  altered(level, { extensions })
/** The extensions that the certificate at `level` should have. */
export const extensionsOf = (level: number) => partsOf(level).extensions ?? []
/** A document whose certificate at `level` has these further extensions. */
export const alsoExtended = (level: number, ...extra: readonly Uint8Array[]) =>
  altered(level, { extensions: [...extensionsOf(level), ...extra] })

/** An unknown extension. */
export const unknown = '1.3.6.1.4.1.99999.1'
/** AlgorithmIdentifier of a P-384 key. */
export const p384Algorithm = sequence(
  objectIdentifier('1.2.840.10045.2.1'),
  objectIdentifier('1.3.132.0.34'),
)
/** The uncompressed point of the key at `level`: the last 97 bytes of its SubjectPublicKeyInfo. */
export const pointOf = (level: number) => publicKeyInfo(keyAt(level)).subarray(-97)
