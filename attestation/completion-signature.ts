import { addressOf, completionDigest, type PointRecovery, recoverPublicKey } from './account.ts'
import { equalBytes } from './bytes.ts'
import { ProofError } from './errors.ts'

/** The facts that a valid signature proves. */
export type SignatureFacts = {
  /** The account that signed: 0x and 40 lower-case hex digits. */
  readonly address: string
  /** Always true: a high s is refused, so each signature has only one form. */
  readonly lowS: true
}

/**
 * Verifies that the account of `publicKey` signed the completion hash. `recover`: see
 * recoverPublicKey. Throws FormatError as completionDigest and recoverPublicKey do, ProofError
 * `wrong_signer`.
 *
 * Does NOT prove that the key is an enclave's (an attestation document is needed), nor the time of
 * the signature.
 *
 * @example
 * const { hash, signature, public_key } = parseExactJson(recordFile)
 * const { address } = verifyCompletionSignature({
 *   hash: decodeHex(hash),
 *   signature: decodeHex(signature),
 *   publicKey: decodeHex(public_key),
 * })
 * console.log(address === notary) // true
 */
export function verifyCompletionSignature(
  signed: {
    readonly hash: Uint8Array
    readonly signature: Uint8Array
    readonly publicKey: Uint8Array
  },
  recover?: PointRecovery,
): SignatureFacts {
  const { hash, signature, publicKey } = signed
  const address = addressOf(publicKey)
  const signer = recoverPublicKey({ digest: completionDigest(hash), signature }, recover)
  if (!equalBytes(signer, publicKey))
    throw new ProofError('wrong_signer', 'expected a signature by the given public key')
  return { address, lowS: true }
}
