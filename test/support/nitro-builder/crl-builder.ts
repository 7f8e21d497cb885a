import { ECDSA_SHA384, extension, type KeyPair, signWith } from './certificate-builder.ts'
import { encodeDer, integer, sequence, time } from './der-encoder.ts'
import { keyAt, MADE_AT, partsOf } from './development-pki.ts'

/** Every part of a revocation list, so that a test can break any one of them. */
export type ListParts = {
  /** DER; null leaves the field out, which means version 1. */
  readonly version: Uint8Array | null
  readonly innerAlgorithm: Uint8Array
  readonly issuer: Uint8Array
  readonly thisUpdate: Date
  readonly nextUpdate: Date | null
  /** Entries, DER. */
  readonly revoked: readonly Uint8Array[]
  /** Extensions, DER; null leaves the field out. */
  readonly extensions: readonly Uint8Array[] | null
  readonly outerAlgorithm: Uint8Array
  readonly sign: (signed: Uint8Array) => Uint8Array
}

/** Gives the DER of the list with these parts. */
function buildList(parts: ListParts): Uint8Array<ArrayBuffer> {
  const signed = sequence(
    ...(parts.version ? [parts.version] : []),
    parts.innerAlgorithm,
    parts.issuer,
    time(parts.thisUpdate),
    ...(parts.nextUpdate ? [time(parts.nextUpdate)] : []),
    ...(parts.revoked.length > 0 ? [sequence(...parts.revoked)] : []),
    ...(parts.extensions ? [encodeDer(0xa0, sequence(...parts.extensions))] : []),
  )
  return sequence(signed, parts.outerAlgorithm, parts.sign(signed))
}

/** One entry: a serial that was revoked an hour before MADE_AT. */
export function entry(serial: number | bigint, ...extensions: readonly Uint8Array[]): Uint8Array {
  const date = time(new Date(MADE_AT.getTime() - HOUR_MS))
  return sequence(
    integer(serial),
    date,
    ...(extensions.length > 0 ? [sequence(...extensions)] : []),
  )
}

/**
 * A list by an issuer, as AWS makes them: a number, no entry, in force for a week around MADE_AT.
 */
export function listBy(
  issuer: { readonly name: Uint8Array; readonly key: KeyPair },
  changed: Partial<ListParts> = {},
): Uint8Array<ArrayBuffer> {
  return buildList({
    version: integer(1),
    innerAlgorithm: ECDSA_SHA384,
    issuer: issuer.name,
    thisUpdate: new Date(MADE_AT.getTime() - HOUR_MS),
    nextUpdate: new Date(MADE_AT.getTime() + 7 * 24 * HOUR_MS),
    revoked: [],
    extensions: [extension('2.5.29.20', { critical: false, value: integer(17) })],
    outerAlgorithm: ECDSA_SHA384,
    sign: signWith(issuer.key),
    ...changed,
  })
}

/** The same, by the CA certificate at a level of the standard chain. */
export function listAt(level: number, changed: Partial<ListParts> = {}): Uint8Array<ArrayBuffer> {
  return listBy({ name: partsOf(level).subject, key: keyAt(level) }, changed)
}

const HOUR_MS = 3_600_000
