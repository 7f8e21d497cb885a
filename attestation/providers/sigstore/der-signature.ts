import { AttestationError } from '../../nitro/attestation-error.ts'
import { parseCertificateSignature } from '../../nitro/certificate.ts'
import { type EcdsaKey, verifyEcdsa } from '../../nitro/ecdsa.ts'

/** True if `signature`, DER of ECDSA-Sig-Value with r and s in range, is by `key` over `data`. */
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
