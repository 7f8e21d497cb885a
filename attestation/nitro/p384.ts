import { p384 } from '@noble/curves/nist.js'

/**
 * A public P-384 key in WebCrypto. Browsers and Node name the type differently, so it is
 * importKey's result type.
 */
export type P384Key = Awaited<ReturnType<typeof globalThis.crypto.subtle.importKey>>

/** An uncompressed point (SEC 1 section 2.3.3): 04, x, y. */
export const POINT_BYTES = 97
const COORDINATE_BYTES = 48

/** Order n of the base point of P-384 (FIPS 186-5, SP 800-186 section 3.2.1.4), big-endian. */
const ORDER = Uint8Array.from(p384.Point.CURVE().n.toString(16).match(/../g) ?? [], (digits) =>
  Number.parseInt(digits, 16),
)

/** True if attacker-controlled `point` is uncompressed and lies on P-384. */
export function isPointOnCurve(point: Uint8Array): boolean {
  if (point.length !== POINT_BYTES || point[0] !== 4) return false
  try {
    // Throws if a coordinate is outside the field or the point is not on the curve.
    p384.Point.fromBytes(point)
    return true
  } catch {
    return false
  }
}

/**
 * True if `signature` (r || s, 96 bytes) has 0 < r < n and 0 < s < n. A high s is allowed, as in
 * half of AWS's signatures. So (r, n-s) is valid too: do not use a signature as a unique key.
 */
export function isSignatureInRange(signature: Uint8Array): boolean {
  const scalars = [signature.subarray(0, COORDINATE_BYTES), signature.subarray(COORDINATE_BYTES)]
  return scalars.every((scalar) => scalar.length === COORDINATE_BYTES && isScalarInRange(scalar))
}

/** Returns the WebCrypto key for a point on P-384. Null if WebCrypto refuses the point. */
export async function importPoint(point: Uint8Array<ArrayBuffer>): Promise<P384Key | null> {
  try {
    return await globalThis.crypto.subtle.importKey('raw', point, KEY_ALGORITHM, false, ['verify'])
  } catch {
    return null
  }
}

/**
 * True if `signature` (r || s) over SHA-384 of `data` was made with the private key of `key`. Never
 * rejects: returns false if WebCrypto refuses the input.
 */
export async function verifyP384({
  key,
  signature,
  data,
}: {
  readonly key: P384Key
  readonly signature: Uint8Array<ArrayBuffer>
  readonly data: Uint8Array<ArrayBuffer>
}): Promise<boolean> {
  try {
    return await globalThis.crypto.subtle.verify(SIGNATURE_ALGORITHM, key, signature, data)
  } catch {
    return false
  }
}

const KEY_ALGORITHM = { name: 'ECDSA', namedCurve: 'P-384' } as const
const SIGNATURE_ALGORITHM = { name: 'ECDSA', hash: 'SHA-384' } as const

function isScalarInRange(scalar: Uint8Array): boolean {
  if (scalar.every((byte) => byte === 0)) return false
  for (const [index, byte] of scalar.entries()) {
    const limit = ORDER[index] ?? 0
    if (byte !== limit) return byte < limit
  }
  return false
}
