import { AttestationError } from '../../nitro/attestation-error.ts'
import { parseCertificateSignature } from '../../nitro/certificate.ts'
import { type EcdsaKey, verifyEcdsa } from '../../nitro/ecdsa.ts'

/**
 * `signature` must be DER of ECDSA-Sig-Value. Returns false for other DER, or r or s out of range.
 */
export async function isSignedWith(
  key: EcdsaKey,
  signature: Uint8Array<ArrayBuffer>,
  data: Uint8Array,
): Promise<boolean> {
  try {
    const pair = parseCertificateSignature({ signature, where: 'signature', curve: key.curve })
    return await verifyEcdsa({ key, signature: pair, data: new Uint8Array(data) })
  } catch (fault) {
    if (fault instanceof AttestationError) return false
    throw fault
  }
}
