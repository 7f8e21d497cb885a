import { ed25519 } from '@noble/curves/ed25519.js'
import { decodeHex, encodeHex } from '../bytes.ts'
import { FormatError } from '../errors.ts'

/** Bytes of an Ed25519 public key, and of the secret it is made from. */
export const RELEASE_KEY_BYTES = 32
/** Bytes of an Ed25519 signature: R and S. */
export const RELEASE_SIGNATURE_BYTES = 64

/**
 * The release key, 32 bytes, that 64 lower-case hex digits are. Only a key that every verifier reads alike: the one encoding
 * of a point (RFC 8032 section 5.1.3: y below p, no sign for x = 0) that is in the group of prime order. A key of small
 * order would make signatures that hold for many messages. Throws FormatError `invalid_release_key`.
 */
export function parseReleaseKey(text: string): Uint8Array {
  if (!/^[0-9a-f]{64}$/.test(text))
    throw new FormatError('invalid_release_key', 'expected a release key of 64 lower-case hex digits')
  const key = decodeHex(text)
  checkPoint(key)
  return key
}

/** The public key of a secret of 32 bytes (RFC 8032 section 5.1.5). */
export function releaseKeyOf(secretKey: Uint8Array): Uint8Array {
  return ed25519.getPublicKey(secretKey)
}

/** The signature of 64 bytes (Ed25519, RFC 8032 section 5.1.6), deterministic: no randomness is needed. */
export function signBytes(message: Uint8Array, secretKey: Uint8Array): Uint8Array {
  return ed25519.sign(message, secretKey)
}

/**
 * Whether the signature over `message` is by `publicKey`, which parseReleaseKey gave. Strict (RFC 8032 section 5.1.7): S
 * below the group's order, R in its one encoding; and R in the group of prime order, so that verifiers with and without the
 * cofactor agree. Never throws.
 */
export function verifyBytes(
  signature: Uint8Array,
  { message, publicKey }: { readonly message: Uint8Array; readonly publicKey: Uint8Array },
): boolean {
  if (signature.length !== RELEASE_SIGNATURE_BYTES) return false
  return (
    ed25519.verify(signature, message, publicKey, { zip215: false }) &&
    isPrimeOrder(signature.subarray(0, RELEASE_KEY_BYTES))
  )
}

function checkPoint(key: Uint8Array): void {
  if (!isPrimeOrder(key))
    throw new FormatError(
      'invalid_release_key',
      `expected a release key that is a point of prime order, got ${encodeHex(key)}`,
    )
}

/** Of an encoded point. Of the small-order points, only the neutral one is free of torsion. */
function isPrimeOrder(encoding: Uint8Array): boolean {
  try {
    const point = ed25519.Point.fromBytes(encoding, false)
    return !point.isSmallOrder() && point.isTorsionFree()
  } catch {
    return false
  }
}
