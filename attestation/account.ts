import { secp256k1 } from '@noble/curves/secp256k1.js'
import { keccak_256 } from '@noble/hashes/sha3.js'
import { concatBytes, encodeHex, encodeUtf8, HASH_BYTES } from './bytes.ts'
import { FormatError, ProofError } from './errors.ts'

/** Bytes of an uncompressed secp256k1 point: 0x04, x, y. */
export const PUBLIC_KEY_BYTES = 65

/** Bytes of a signature: r, s, v. */
export const SIGNATURE_BYTES = 65

/**
 * The Ethereum address of `publicKey` (65 bytes, uncompressed): 0x and 40 lower-case hex digits.
 * Throws FormatError `invalid_public_key` for a wrong form or a point that is not on the curve.
 */
export function addressOf(publicKey: Uint8Array): string {
  checkPublicKey(publicKey)
  return `0x${encodeHex(keccak_256(publicKey.subarray(1)).subarray(-20))}`
}

/**
 * The digest (32 bytes) that an account signs for the `hash` (32 raw bytes) of a completion:
 * EIP-191, version 0x45 (`personal_sign`). Throws FormatError `invalid_hash`.
 */
export function completionDigest(hash: Uint8Array): Uint8Array {
  if (hash.length !== HASH_BYTES)
    throw new FormatError(
      'invalid_hash',
      `expected a hash of ${HASH_BYTES} bytes, got ${hash.length}`,
    )
  return keccak_256(concatBytes(PERSONAL_MESSAGE_PREFIX, hash))
}

/**
 * Recovers the public key (65 bytes) of the account that signed `digest` (32 bytes). A forged
 * signature results in a key too, so compare the key with the expected key. Throws FormatError
 * `invalid_signature` (not 65 bytes; v not 27 or 28; r or s out of range), `high_s` (EIP-2: s over
 * half the order), ProofError `unrecoverable` (no point has this r). Callers can pass a faster
 * `recover`, the function that computes the point.
 */
export function recoverPublicKey(
  signed: { readonly digest: Uint8Array; readonly signature: Uint8Array },
  recover: PointRecovery = recoverPoint,
): Uint8Array {
  const { digest, signature } = signed
  if (signature.length !== SIGNATURE_BYTES)
    throw new FormatError(
      'invalid_signature',
      `expected ${SIGNATURE_BYTES} bytes, got ${signature.length}`,
    )
  const v = signature[SIGNATURE_BYTES - 1]
  if (v !== 27 && v !== 28)
    throw new FormatError('invalid_signature', 'expected 27 or 28 as the last byte')
  const parsed = parseSignature(signature.subarray(0, SIGNATURE_BYTES - 1))
  if (parsed.hasHighS())
    throw new FormatError('high_s', 'expected s of at most half the order of the curve')
  try {
    return recover({
      digest,
      compact: signature.subarray(0, SIGNATURE_BYTES - 1),
      recoveryBit: v === 27 ? 0 : 1,
    })
  } catch {
    throw new ProofError('unrecoverable', 'expected r to be the x coordinate of a point')
  }
}

/**
 * Recovers an uncompressed point (65 bytes) from r||s (64 bytes, in range, low s). Throws when no
 * such point exists.
 */
export type PointRecovery = (signed: {
  readonly digest: Uint8Array
  readonly compact: Uint8Array
  readonly recoveryBit: 0 | 1
}) => Uint8Array

const recoverPoint: PointRecovery = ({ digest, compact, recoveryBit }) =>
  parseSignature(compact).addRecoveryBit(recoveryBit).recoverPublicKey(digest).toBytes(false)

const PERSONAL_MESSAGE_PREFIX = encodeUtf8('\x19Ethereum Signed Message:\n32')

function parseSignature(compact: Uint8Array): InstanceType<typeof secp256k1.Signature> {
  try {
    return secp256k1.Signature.fromBytes(compact, 'compact')
  } catch {
    throw new FormatError(
      'invalid_signature',
      'expected r and s between 1 and the order of the curve',
    )
  }
}

function checkPublicKey(publicKey: Uint8Array): void {
  const isValid =
    publicKey.length === PUBLIC_KEY_BYTES &&
    publicKey[0] === 4 &&
    secp256k1.utils.isValidPublicKey(publicKey, false)
  if (!isValid)
    throw new FormatError(
      'invalid_public_key',
      'expected an uncompressed secp256k1 point of 65 bytes',
    )
}
