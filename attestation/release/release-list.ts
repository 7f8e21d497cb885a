import { FormatError, ProofError } from '../errors.ts'
import { isJsonObject, type Json, memberOf } from '../json/value.ts'
import { parseRelease, type Release } from './release.ts'
import { arrayOf, invalidRelease, membersOf, millisecondsOf, textOf, timeOf } from './release-forms.ts'
import { parseSignatures, type ReleaseSignature } from './release-signatures.ts'

/** What `format` is in every signed list of releases of version 1, and what its signatures begin with. */
export const RELEASES_FORMAT = 'affidavit-releases/v1'

/** Releases that a list may have. */
export const RELEASES_MAX = 256

/** Characters that the reason of a revocation may have. */
export const REASON_LENGTH_MAX = 500

/** A release, and when documents of it are accepted (README.md of this folder, Times). */
export type ReleaseEntry = {
  readonly release: Release
  /** The first second at which a document may have been made, ISO 8601; null: from ever. */
  readonly accepted_from: string | null
  /** The second before which it must have been made, ISO 8601; null: no end is known. */
  readonly accepted_until: string | null
  /** Taken back: then no document of it is accepted, whenever it was made. */
  readonly revoked: { readonly at: string; readonly reason: string } | null
}

/** The releases that an operator runs: the payload that is signed. */
export type ReleaseList = {
  /** ISO 8601. Each list of an operator has a later one than the list before. */
  readonly issued_at: string
  readonly releases: readonly ReleaseEntry[]
}

/** A list with its signatures: the file `releases.json` as it is published. */
export type SignedReleaseList = {
  readonly format: typeof RELEASES_FORMAT
  readonly list: ReleaseList
  readonly signatures: readonly ReleaseSignature[]
}

/**
 * The signed list that attacker-controlled `json` is: exactly the members of version 1, each in its one form. Read its
 * text with parseExactJson. Throws FormatError `unknown_release_format`, `invalid_release` naming the member,
 * `invalid_release_key`.
 *
 * Does NOT prove who signed it (verifyReleaseList), nor that it is the newest (checkNotRolledBack).
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

/** The list that attacker-controlled `json`, a payload, describes. Throws FormatError `invalid_release`. */
export function parseReleaseList(json: Json): ReleaseList {
  const list = membersOf(json, 'list', ['issued_at', 'releases'])
  const releases = arrayOf(list.releases, 'list.releases', { min: 0, max: RELEASES_MAX }).map(parseEntry)
  checkDistinct(releases)
  return { issued_at: timeOf(list.issued_at, 'list.issued_at'), releases }
}

/** Checks one entry by itself, as a caller gives it: entries of several lists may be of one image. Throws FormatError `invalid_release`. */
export function checkReleaseEntry(value: unknown): void {
  parseEntry(value as Json, 0)
}

/** A release by itself, as an entry that is accepted at any time: what trusting its signer alone says. */
export function entryOf(release: Release): ReleaseEntry {
  return { release, accepted_from: null, accepted_until: null, revoked: null }
}

/**
 * Checks that a list is not older than one that the reader took before; `newestMs` is that one's issued_at, Unix
 * milliseconds, which the reader has to keep. Throws ProofError `release_list_older`.
 *
 * Does NOT protect a reader that keeps nothing, nor one that is never shown a newer list: whoever passes lists on can hold
 * the one back that revokes.
 */
export function checkNotRolledBack({ issued_at }: ReleaseList, newestMs: number): void {
  if (millisecondsOf(issued_at) < newestMs)
    throw new ProofError(
      'release_list_older',
      `expected a list issued at ${new Date(newestMs).toISOString()} or later, got one of ${issued_at}`,
    )
}

function parseEntry(json: Json, at: number): ReleaseEntry {
  const name = `list.releases.${at}`
  const entry = membersOf(json, name, ['release', 'accepted_from', 'accepted_until', 'revoked'])
  const from = entry.accepted_from === null ? null : timeOf(entry.accepted_from, `${name}.accepted_from`)
  const until = entry.accepted_until === null ? null : timeOf(entry.accepted_until, `${name}.accepted_until`)
  if (from !== null && until !== null && millisecondsOf(until) <= millisecondsOf(from))
    throw invalidRelease(`${name}.accepted_until`, 'later than accepted_from')
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

/** PCR0 measures the whole image: two entries of one could contradict each other, and one hide the other's revocation. */
function checkDistinct(releases: readonly ReleaseEntry[]): void {
  const images = new Set(releases.map(({ release }) => release.measurements.PCR0))
  if (images.size !== releases.length) throw invalidRelease('list.releases', 'of a different PCR0 each')
}
