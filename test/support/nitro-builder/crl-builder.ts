import { buildList, emptyListOf, type ListParts } from '#src/local/x509/revocation-list.ts'
import type { KeyPair } from './certificate-builder.ts'
import { integer, sequence, time } from './der-encoder.ts'
import { keyAt, MADE_AT, partsOf } from './development-pki.ts'

export type { ListParts }

const HOUR_MS = 3_600_000

/** As AWS makes lists: in force for a week. */
export const LIST_PERIOD = {
  from: new Date(MADE_AT.getTime() - HOUR_MS),
  to: new Date(MADE_AT.getTime() + 7 * 24 * HOUR_MS),
}

/** One entry: a serial that was revoked an hour before MADE_AT. */
export function entry(serial: number | bigint, ...extensions: readonly Uint8Array[]): Uint8Array {
  return sequence(
    integer(serial),
    time(LIST_PERIOD.from),
    ...(extensions.length > 0 ? [sequence(...extensions)] : []),
  )
}

/** A list without entries by an issuer, in force around MADE_AT. */
export function listBy(
  issuer: { readonly name: Uint8Array; readonly key: KeyPair },
  changed: Partial<ListParts> = {},
): Uint8Array<ArrayBuffer> {
  return buildList({ ...emptyListOf(issuer, LIST_PERIOD), ...changed })
}

/** The same, by the CA certificate at a level of the standard chain. */
export function listAt(level: number, changed: Partial<ListParts> = {}): Uint8Array<ArrayBuffer> {
  return listBy({ name: partsOf(level).subject, key: keyAt(level) }, changed)
}
