import { addressOf, type PointRecovery, recoverPublicKey, SIGNATURE_BYTES } from './account.ts'
import { decodeHex, HASH_BYTES } from './bytes.ts'
import { ProofError } from './errors.ts'
import { formsOf } from './json/forms.ts'
import type { Json } from './json/value.ts'
import { refusalDigest, type SignedRefusal } from './refusal.ts'

const { countOf, hexOf, membersOf, textOf } = formsOf('invalid_refusal')

/**
 * Reads the refusal in attacker-controlled `value`, and verifies that `notary` signed it for the
 * request with this hash. Throws FormatError `invalid_refusal`, those of recoverPublicKey,
 * ProofError `other_refusal` (for another request or enclave), `wrong_signer`.
 *
 * Does NOT prove that the notary is an enclave's, or that the enclave made nothing at another
 * attempt: a gateway can send a request again.
 */
export function verifyRefusal(
  value: Json,
  expected: { readonly requestHash: string; readonly notary: string },
  recover?: PointRecovery,
): SignedRefusal {
  const given = membersOf(value, 'refusal', [
    'request_hash',
    'notary',
    'attempt',
    'code',
    'at',
    'signature',
  ])
  const refusal = {
    request_hash: hexOf(given.request_hash, 'refusal.request_hash', HASH_BYTES),
    notary: textOf(given.notary, 'refusal.notary'),
    attempt: countOf(given.attempt, 'refusal.attempt'),
    code: textOf(given.code, 'refusal.code'),
    at: countOf(given.at, 'refusal.at'),
    signature: textOf(given.signature, 'refusal.signature', SIGNATURE),
  }
  if (refusal.request_hash !== expected.requestHash || refusal.notary !== expected.notary)
    throw new ProofError('other_refusal', 'expected a refusal of this request by its enclave')
  const signature = decodeHex(refusal.signature)
  const signer = recoverPublicKey({ digest: refusalDigest(refusal), signature }, recover)
  if (addressOf(signer) !== refusal.notary)
    throw new ProofError('wrong_signer', 'expected a refusal that its notary signed')
  return refusal
}

const SIGNATURE = {
  form: new RegExp(`^0x[0-9a-f]{${2 * SIGNATURE_BYTES}}$`),
  expectation: `0x and ${SIGNATURE_BYTES} bytes in lower-case hex`,
}
