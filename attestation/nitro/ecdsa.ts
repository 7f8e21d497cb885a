import { p256, p384 } from '@noble/curves/nist.js'

/** A curve, with the hash that it is used with. Points are uncompressed (SEC 1 section 2.3.3). */
export type EcdsaCurve = {
  readonly name: 'P-256' | 'P-384'
  readonly hash: 'SHA-256' | 'SHA-384'
  /** Object identifiers of the curve (RFC 5480) and of ECDSA with the hash (RFC 5758). */
  readonly identifier: string
  readonly algorithm: string
  /** Bytes of a coordinate, and of r and s. A point has one byte and two coordinates. */
  readonly coordinateBytes: number
  /** Order n of the base point (SP 800-186 section 3.2.1), big-endian. */
  readonly order: Uint8Array
  readonly Point: typeof p256.Point | typeof p384.Point
}

export const P256: EcdsaCurve = {
  name: 'P-256',
  hash: 'SHA-256',
  identifier: '1.2.840.10045.3.1.7',
  algorithm: '1.2.840.10045.4.3.2',
  coordinateBytes: 32,
  order: orderOf(p256.Point),
  Point: p256.Point,
}

export const P384: EcdsaCurve = {
  name: 'P-384',
  hash: 'SHA-384',
  identifier: '1.3.132.0.34',
  algorithm: '1.2.840.10045.4.3.3',
  coordinateBytes: 48,
  order: orderOf(p384.Point),
  Point: p384.Point,
}

/**
 * A public key in WebCrypto. `key` has the result type of importKey, because browsers and Node name
 * this type differently.
 */
export type EcdsaKey = {
  readonly curve: EcdsaCurve
  readonly key: Awaited<ReturnType<typeof globalThis.crypto.subtle.importKey>>
}

export function pointBytes({ coordinateBytes }: EcdsaCurve): number {
  return 1 + 2 * coordinateBytes
}

/** True if attacker-controlled `point` is uncompressed and lies on the curve. */
export function isPointOnCurve(point: Uint8Array, curve: EcdsaCurve): boolean {
  if (point.length !== pointBytes(curve) || point[0] !== 4) return false
  try {
    // Throws if a coordinate is outside the field or the point is not on the curve.
    curve.Point.fromBytes(point)
    return true
  } catch {
    return false
  }
}

/**
 * True if `signature` (r || s) has 0 < r < n and 0 < s < n. A high s is allowed, as in half of
 * AWS's and Intel's signatures. So (r, n-s) is valid too: do not use a signature as a unique key.
 */
export function isSignatureInRange(signature: Uint8Array, curve: EcdsaCurve): boolean {
  const { coordinateBytes } = curve
  const scalars = [signature.subarray(0, coordinateBytes), signature.subarray(coordinateBytes)]
  return scalars.every(
    (scalar) => scalar.length === coordinateBytes && isScalarInRange(scalar, curve),
  )
}

/** Null if WebCrypto refuses the point. */
export async function importPoint(
  point: Uint8Array<ArrayBuffer>,
  curve: EcdsaCurve,
): Promise<EcdsaKey | null> {
  const algorithm = { name: 'ECDSA', namedCurve: curve.name }
  try {
    const { subtle } = globalThis.crypto
    return { curve, key: await subtle.importKey('raw', point, algorithm, false, ['verify']) }
  } catch {
    return null
  }
}

/**
 * True if `signature` (r || s) over the hash of `data` was made with the private key of `key`.
 * Never rejects: returns false if WebCrypto refuses the input.
 */
export async function verifyEcdsa({
  key: { key, curve },
  signature,
  data,
}: {
  readonly key: EcdsaKey
  readonly signature: Uint8Array<ArrayBuffer>
  readonly data: Uint8Array<ArrayBuffer>
}): Promise<boolean> {
  const algorithm = { name: 'ECDSA', hash: curve.hash }
  try {
    return await globalThis.crypto.subtle.verify(algorithm, key, signature, data)
  } catch {
    return false
  }
}

function orderOf(Point: EcdsaCurve['Point']): Uint8Array {
  return Uint8Array.from(Point.CURVE().n.toString(16).match(/../g) ?? [], (digits) =>
    Number.parseInt(digits, 16),
  )
}

function isScalarInRange(scalar: Uint8Array, { order }: EcdsaCurve): boolean {
  if (scalar.every((byte) => byte === 0)) return false
  for (const [index, byte] of scalar.entries()) {
    const limit = order[index] ?? 0
    if (byte !== limit) return byte < limit
  }
  return false
}
