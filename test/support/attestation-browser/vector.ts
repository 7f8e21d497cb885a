import type { AttestationPolicy } from '#attestation/nitro/policy.ts'
import type { ReleaseEntry } from '#attestation/release/release-list.ts'

/** One verification as plain JSON, so that it can be given to a browser. Bytes are hex. */
export type Vector = {
  readonly name: string
  readonly document: string
  readonly atMs: number
  /** `accepted`, or the code of its refusal. */
  readonly expected: string
  readonly policy: {
    readonly measurements: 'any' | readonly (readonly (readonly [number, string])[])[]
    readonly releases: readonly ReleaseEntry[] | null
    readonly mode: 'current' | 'historical' | null
    readonly nonce: string | null
    readonly maxAgeMs: number | null
    readonly futureSkewMs: number | null
    readonly allowDebug: boolean
    readonly roots: readonly string[] | null
    readonly revoked: readonly { readonly issuer: string; readonly serial: string }[]
    readonly revocationLists: readonly {
      readonly issuer: string
      readonly issuerKey: string
      readonly serials: readonly string[]
      readonly thisUpdateMs: number
      readonly nextUpdateMs: number
    }[]
  }
}

type HexCodec = {
  readonly encode: (bytes: Uint8Array) => string
  readonly decode: (hex: string) => Uint8Array
}

/** Gives a policy as JSON. */
export function encodePolicy(
  policy: AttestationPolicy,
  { encode }: Pick<HexCodec, 'encode'>,
): Vector['policy'] {
  const {
    measurements,
    releases,
    mode,
    nonce,
    maxAgeMs,
    futureSkewMs,
    allowDebug,
    roots,
    revoked,
    revocationLists,
  } = policy
  return {
    measurements:
      measurements === 'any'
        ? 'any'
        : measurements.map((set) =>
            [...set].map(([index, value]) => [index, encode(value)] as const),
          ),
    releases: releases ?? null,
    mode: mode ?? null,
    nonce: nonce ? encode(nonce) : null,
    maxAgeMs: maxAgeMs ?? null,
    futureSkewMs: futureSkewMs ?? null,
    allowDebug: allowDebug ?? false,
    roots: roots?.map(encode) ?? null,
    revoked: (revoked ?? []).map(({ issuer, serial }) => ({
      issuer: encode(issuer),
      serial: encode(serial),
    })),
    revocationLists: (revocationLists ?? []).map(({ issuer, issuerKey, serials, ...times }) => ({
      ...times,
      issuer: encode(issuer),
      issuerKey: encode(issuerKey),
      serials: serials.map(encode),
    })),
  }
}

/** Gives the policy that encodePolicy was given. */
export function decodePolicy(
  policy: Vector['policy'],
  { decode }: Pick<HexCodec, 'decode'>,
): AttestationPolicy {
  const {
    measurements,
    releases,
    mode,
    nonce,
    maxAgeMs,
    futureSkewMs,
    allowDebug,
    roots,
    revoked,
    revocationLists,
  } = policy
  return {
    measurements:
      measurements === 'any'
        ? 'any'
        : measurements.map((set) => new Map(set.map(([index, value]) => [index, decode(value)]))),
    ...(releases === null ? {} : { releases }),
    ...(mode === null ? {} : { mode }),
    ...(nonce === null ? {} : { nonce: decode(nonce) }),
    ...(maxAgeMs === null ? {} : { maxAgeMs }),
    ...(futureSkewMs === null ? {} : { futureSkewMs }),
    allowDebug,
    ...(roots === null ? {} : { roots: roots.map(decode) }),
    revoked: revoked.map(({ issuer, serial }) => ({
      issuer: decode(issuer),
      serial: decode(serial),
    })),
    revocationLists: revocationLists.map(({ issuer, issuerKey, serials, ...times }) => ({
      ...times,
      issuer: decode(issuer),
      issuerKey: decode(issuerKey),
      serials: serials.map(decode),
    })),
  }
}
