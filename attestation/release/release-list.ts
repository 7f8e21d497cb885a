import { decodeHex, equalBytes } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { isJsonObject, type Json, memberOf } from '../json/value.ts'
import { ownMembers } from '../own-members.ts'
import { parseRelease, type Release } from './release.ts'
import { nameRelease } from './release-name.ts'
import {
  millisecondsOf,
  parseSignatures,
  type ReleaseSignature,
  releaseForms,
  timeOf,
} from './release-signatures.ts'

const { arrayOf, invalid, membersOf, textOf } = releaseForms

/** Version 1. This text is at the start of the bytes that are signed. */
export const RELEASES_FORMAT = 'affidavit-releases/v1'

export const RELEASES_MAX = 256

export const REASON_LENGTH_MAX = 500

/** A release, and when its attestation documents are accepted (README.md of this folder, Times). */
export type ReleaseEntry = {
  readonly release: Release
  /** Documents are accepted from this second on, ISO 8601. Null: from any time. */
  readonly accepted_from: string | null
  /** Documents are refused from this second on, ISO 8601. Null: no end is known. */
  readonly accepted_until: string | null
  /** If the release is revoked, its documents are never accepted. */
  readonly revoked: { readonly at: string; readonly reason: string } | null
}

/** The releases that an operator runs: the signed payload. */
export type ReleaseList = {
  /** ISO 8601. Each new list of an operator has a later time. */
  readonly issued_at: string
  readonly releases: readonly ReleaseEntry[]
}

/** A list with its signatures: the content of the published file `releases.json`. */
export type SignedReleaseList = {
  readonly format: typeof RELEASES_FORMAT
  readonly list: ReleaseList
  readonly signatures: readonly ReleaseSignature[]
}

/**
 * Reads the signed list in attacker-controlled `json` (read its text with parseExactJson). It must
 * have exactly the members of version 1, each in its canonical form. Throws FormatError
 * `unknown_release_format`, `invalid_release` naming the member, `invalid_release_key`. Does NOT
 * prove who signed the list (verifyReleaseList), nor that it is the newest list
 * (checkNotRolledBack).
 */
export function parseSignedReleaseList(json: Json): SignedReleaseList {
  if (!isJsonObject(json) || memberOf(json, 'format') !== RELEASES_FORMAT)
    throw new FormatError('unknown_release_format', `expected format to be ${RELEASES_FORMAT}`)
  const signed = membersOf(json, 'the signed list', ['format', 'list', 'signatures'])
  return {
    format: RELEASES_FORMAT,
    list: parseReleaseList(signed.list),
    signatures: parseSignatures(signed.signatures),
  }
}

/** Reads attacker-controlled `json`, the payload. Throws FormatError `invalid_release`. */
export function parseReleaseList(json: Json): ReleaseList {
  const list = membersOf(json, 'list', ['issued_at', 'releases'])
  const releases = arrayOf(list.releases, 'list.releases', { min: 0, max: RELEASES_MAX }).map(
    parseEntry,
  )
  checkDistinct(releases)
  return { issued_at: timeOf(list.issued_at, 'list.issued_at'), releases }
}

/**
 * Checks one entry. Does not compare it with other entries, because entries from several lists can
 * have the same image. Throws FormatError `invalid_release`.
 */
export function checkReleaseEntry(value: unknown): void {
  parseEntry(value as Json, 0)
}

/** Creates an entry that is accepted at any time, for a caller who trusts a single release. */
export function entryOf(release: Release): ReleaseEntry {
  return { release, accepted_from: null, accepted_until: null, revoked: null }
}

/**
 * Checks that a list is not older than the newest list that the reader accepted before. `newestMs`
 * is the issued_at of that list, Unix milliseconds. Throws ProofError `release_list_older`. Does
 * NOT protect a reader that stores nothing or never receives a newer list: a party that forwards
 * lists can hold back a revocation.
 */
export function checkNotRolledBack({ issued_at }: ReleaseList, newestMs: number): void {
  if (millisecondsOf(issued_at) < newestMs)
    throw new ProofError(
      'release_list_older',
      `expected a list issued at ${new Date(newestMs).toISOString()} or later, got a list of ${issued_at}`,
    )
}

function parseEntry(json: Json, at: number): ReleaseEntry {
  const name = `list.releases.${at}`
  const entry = membersOf(json, name, ['release', 'accepted_from', 'accepted_until', 'revoked'])
  const from =
    entry.accepted_from === null ? null : timeOf(entry.accepted_from, `${name}.accepted_from`)
  const until =
    entry.accepted_until === null ? null : timeOf(entry.accepted_until, `${name}.accepted_until`)
  if (from !== null && until !== null && millisecondsOf(until) <= millisecondsOf(from))
    throw invalid(`${name}.accepted_until`, 'later than accepted_from')
  return {
    release: parseRelease(entry.release, `${name}.release`),
    accepted_from: from,
    accepted_until: until,
    revoked: entry.revoked === null ? null : parseRevocation(entry.revoked, `${name}.revoked`),
  }
}

function parseRevocation(json: Json, name: string): ReleaseEntry['revoked'] {
  const { at, reason } = membersOf(json, name, ['at', 'reason'])
  return { at: timeOf(at, `${name}.at`), reason: textOf(reason, `${name}.reason`, REASON) }
}

const REASON = {
  form: new RegExp(`^[^\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}]{1,${REASON_LENGTH_MAX}}$`, 'u'),
  expectation: `a line of 1 to ${REASON_LENGTH_MAX} characters`,
}

/**
 * Allows one entry for each image (PCR0). A second entry could contradict the first, or hide its
 * revocation.
 */
function checkDistinct(releases: readonly ReleaseEntry[]): void {
  const images = new Set(releases.map(({ release }) => release.measurements.PCR0))
  if (images.size !== releases.length) throw invalid('list.releases', 'of a different PCR0 each')
}

/** `not_yet` and `expired`: the document was made too early or too late. */
type ReleaseRefusal = 'not_yet' | 'expired' | 'revoked'

/** The releases in a list that are accepted at one time, and the other releases. */
export type AcceptedMeasurements = {
  readonly accepted: readonly {
    readonly release: Release
    readonly measurements: ReadonlyMap<number, Uint8Array>
  }[]
  readonly refused: readonly RefusedRelease[]
}

/** `message` may contain text from the operator. */
type RefusedRelease = {
  readonly release: Release
  readonly measurements: ReadonlyMap<number, Uint8Array>
  readonly reason: ReleaseRefusal
  readonly message: string
}

/**
 * Returns the measurements that are accepted in a document made at `atMs`, and the reason why each
 * other release is refused. `atMs` is the document's own timestamp (Unix milliseconds), by the
 * security module's clock, which enclave and host cannot set. A release is accepted if
 * accepted_from ≤ `atMs` < accepted_until. An image (PCR0) that any entry revokes is never
 * accepted. Does NOT say when a completion was made: the completion can be later than the document.
 */
export function acceptedMeasurements(
  entries: readonly ReleaseEntry[],
  atMs: number,
): AcceptedMeasurements {
  const revocations = new Map(
    entries.flatMap((entry) =>
      entry.revoked ? [[entry.release.measurements.PCR0, entry.revoked]] : [],
    ),
  )
  const judged = entries.map((entry) => {
    const { release } = entry
    const revoked = revocations.get(release.measurements.PCR0) ?? null
    return {
      release,
      measurements: measurementSetOf(release),
      refusal: refusalOf({ ...entry, revoked }, atMs),
    }
  })
  return {
    accepted: judged.flatMap(({ refusal, ...rest }) => (refusal === null ? [rest] : [])),
    refused: judged.flatMap(({ refusal, ...rest }) =>
      refusal === null ? [] : [{ ...rest, ...refusal }],
    ),
  }
}

type ReleaseMatch =
  | { readonly kind: 'accepted'; readonly release: Release }
  | ({ readonly kind: 'refused' } & RefusedRelease)
  | { readonly kind: 'unknown' }

/**
 * Returns the release whose measurements are all in `pcrs`, and whether the release is accepted at
 * `timestampMs`.
 */
export function matchRelease(
  {
    pcrs,
    timestampMs,
  }: { readonly pcrs: ReadonlyMap<number, Uint8Array>; readonly timestampMs: number },
  entries: readonly ReleaseEntry[],
): ReleaseMatch {
  const { accepted, refused } = acceptedMeasurements(entries, timestampMs)
  const isFound = ({ measurements }: { readonly measurements: ReadonlyMap<number, Uint8Array> }) =>
    isWithin(measurements, pcrs)
  const good = accepted.find(isFound)
  if (good) return { kind: 'accepted', release: good.release }
  const bad = refused.find(isFound)
  return bad ? { kind: 'refused', ...bad } : { kind: 'unknown' }
}

/** 48 bytes each, by PCR index. */
function measurementSetOf({ measurements }: Release): ReadonlyMap<number, Uint8Array> {
  const { PCR0, PCR1, PCR2, PCR8 } = ownMembers(measurements)
  const image = [PCR0, PCR1, PCR2].map((hex, index): [number, Uint8Array] => [
    index,
    decodeHex(hex),
  ])
  return new Map(PCR8 === undefined ? image : [...image, [8, decodeHex(PCR8)]])
}

function isWithin(
  expected: ReadonlyMap<number, Uint8Array>,
  found: ReadonlyMap<number, Uint8Array>,
): boolean {
  return [...expected].every(([index, value]) =>
    equalBytes(found.get(index) ?? new Uint8Array(), value),
  )
}

function refusalOf(
  { release, accepted_from: from, accepted_until: until, revoked }: ReleaseEntry,
  atMs: number,
): { readonly reason: ReleaseRefusal; readonly message: string } | null {
  const name = nameRelease(release)
  if (revoked)
    return { reason: 'revoked', message: `${name} was revoked at ${revoked.at}: ${revoked.reason}` }
  if (from !== null && !(atMs >= millisecondsOf(from)))
    return { reason: 'not_yet', message: `${name} is accepted from ${from} on` }
  if (until !== null && !(atMs < millisecondsOf(until)))
    return { reason: 'expired', message: `${name} was accepted until ${until}` }
  return null
}
