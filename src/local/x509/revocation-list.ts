import { type Authority, extension, type Period, signatureParts } from './certificate-builder.ts'
import { derInteger, encodeDer, sequence, time } from './der-encoder.ts'

/** Nothing checks that the parts fit together. */
export type ListParts = {
  /** DER. Null leaves the field out, which means version 1. */
  readonly version: Uint8Array | null
  readonly innerAlgorithm: Uint8Array
  readonly issuer: Uint8Array
  readonly thisUpdate: Date
  readonly nextUpdate: Date | null
  /** Entries, DER. */
  readonly revoked: readonly Uint8Array[]
  /** Extensions, DER. Null leaves the field out. */
  readonly extensions: readonly Uint8Array[] | null
  readonly outerAlgorithm: Uint8Array
  readonly sign: (signed: Uint8Array) => Uint8Array
}

export function buildList(parts: ListParts): Uint8Array<ArrayBuffer> {
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

export function emptyListOf({ name, key }: Authority, { from, to }: Period): ListParts {
  return {
    version: derInteger(1),
    issuer: name,
    thisUpdate: from,
    nextUpdate: to,
    revoked: [],
    extensions: [extension('2.5.29.20', { critical: false, value: derInteger(17) })],
    ...signatureParts(key),
  }
}
