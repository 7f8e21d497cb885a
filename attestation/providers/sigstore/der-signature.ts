import { AttestationError } from '../../nitro/attestation-error.ts'
import { parseCertificateSignature } from '../../nitro/certificate.ts'
import { type EcdsaKey, verifyEcdsa } from '../../nitro/ecdsa.ts'

/**
 * Returns true if `key` signed `data`. Returns false if `signature` is not DER of ECDSA-Sig-Value,
 * or if r or s is out of range.
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
