import { decodeHex, equalBytes } from '../bytes.ts'
import type { MeasurementSet } from '../nitro/policy.ts'
import { ownMembers } from '../own-members.ts'
import type { Release } from './release.ts'
import { millisecondsOf } from './release-forms.ts'
import type { ReleaseEntry } from './release-list.ts'

/** Why a release is not accepted: of documents made too early, too late, or whenever. */
export type ReleaseRefusal = 'not_yet' | 'expired' | 'revoked'

/** What became of each release of a list, at one time. */
export type AcceptedMeasurements = {
  readonly accepted: readonly { readonly release: Release; readonly measurements: MeasurementSet }[]
  readonly refused: readonly RefusedRelease[]
}

/** A release that is not accepted; `message` says why, with the times of the entry. It may hold the operator's words. */
export type RefusedRelease = {
  readonly release: Release
  readonly measurements: MeasurementSet
  readonly reason: ReleaseRefusal
  readonly message: string
}

/**
 * Gives the measurements that are acceptable in a document made at `atMs`, and why those of every other release are not.
 * `atMs` is the document's own timestamp (Unix milliseconds): the security module's clock, which neither the enclave's code
 * nor its host can set. A release is accepted from the first millisecond of accepted_from to the last before
 * accepted_until. One that is revoked is never accepted, and revokes its image (PCR0) in every other entry too.
 *
 * Does NOT say when a completion was made, only when the document was: a document that was accepted stays with the
 * records of its key until its certificates end.
 */
export function acceptedMeasurements(entries: readonly ReleaseEntry[], atMs: number): AcceptedMeasurements {
  const revocations = new Map(
    entries.flatMap((entry) => (entry.revoked ? [[entry.release.measurements.PCR0, entry.revoked]] : [])),
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
    refused: judged.flatMap(({ refusal, ...rest }) => (refusal === null ? [] : [{ ...rest, ...refusal }])),
  }
}

/** Where a document's measurements are found among releases. */
export type ReleaseMatch =
  | { readonly kind: 'accepted'; readonly release: Release }
  | ({ readonly kind: 'refused' } & RefusedRelease)
  | { readonly kind: 'unknown' }

/** Gives the release whose measurements are all in a document made at `atMs`, and whether it is accepted then. */
export function matchRelease(
  { pcrs, timestampMs }: { readonly pcrs: MeasurementSet; readonly timestampMs: number },
  entries: readonly ReleaseEntry[],
): ReleaseMatch {
  const { accepted, refused } = acceptedMeasurements(entries, timestampMs)
  const isFound = ({ measurements }: { readonly measurements: MeasurementSet }) =>
    isWithin(measurements, pcrs)
  const good = accepted.find(isFound)
  if (good) return { kind: 'accepted', release: good.release }
  const bad = refused.find(isFound)
  return bad ? { kind: 'refused', ...bad } : { kind: 'unknown' }
}

/** By what a release is known: version and commit. */
export type ReleaseName = Pick<Release, 'version' | 'git_commit'>

/** The name of a release, without the rest. */
export function releaseName({ version, git_commit }: Release): ReleaseName {
  return { version, git_commit }
}

/** A release in a few words. */
export function nameRelease({ version, git_commit }: ReleaseName): string {
  return `release ${version} (commit ${git_commit})`
}

/** The measurements of a release as a policy takes them: 48 bytes each by PCR index. */
export function measurementSetOf({ measurements }: Release): MeasurementSet {
  const { PCR0, PCR1, PCR2, PCR8 } = ownMembers(measurements)
  const image = [PCR0, PCR1, PCR2].map((hex, index): [number, Uint8Array] => [index, decodeHex(hex)])
  return new Map(PCR8 === undefined ? image : [...image, [8, decodeHex(PCR8)]])
}

function isWithin(expected: MeasurementSet, found: MeasurementSet): boolean {
  return [...expected].every(([index, value]) => equalBytes(found.get(index) ?? new Uint8Array(), value))
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
