import { FormatError } from '../../../attestation/errors.ts'
import { nameRelease } from '../../../attestation/release/accepted-releases.ts'
import { formatTime, millisecondsOf, timeOf } from '../../../attestation/release/release-forms.ts'
import {
  parseReleaseList,
  type ReleaseEntry,
  type ReleaseList,
} from '../../../attestation/release/release-list.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import { printable } from '../printable.ts'

/** How far into the future a list may be dated for the next one to be made, milliseconds: a clock that is wrong shows. */
export const LIST_SKEW_MS_MAX = 5 * 60_000

/** Digits by which a commit or an image may be named, at least. */
export const ABBREVIATION_MIN = 7

/** Gives the list with one release more. Throws CliError when its image is in the list. */
export function addRelease(list: ReleaseList, entry: ReleaseEntry): ReleaseList {
  const { PCR0 } = entry.release.measurements
  const known = list.releases.find(({ release }) => release.measurements.PCR0 === PCR0)
  if (known)
    throw new CliError(`${printable(nameRelease(known.release))} of this image (PCR0) is in the list already`)
  return { ...list, releases: [...list.releases, entry] }
}

/**
 * Gives the list with the one release that `name` stands for (its version, its commit or PCR0, or the first
 * ABBREVIATION_MIN digits or more of those) replaced by what `change` gives. Throws CliError when it stands for none, or
 * for several.
 */
export function changeRelease(
  list: ReleaseList,
  name: string,
  change: (entry: ReleaseEntry) => ReleaseEntry,
): ReleaseList {
  const found = list.releases.filter((entry) => isNamed(entry, name))
  if (found.length === 0) throw new CliError(`no release of the list is called ${printable(name)}`)
  if (found.length > 1) {
    const images = found.map(({ release }) => release.measurements.PCR0).join(', ')
    throw new CliError(`${printable(name)} stands for several releases: name one by its PCR0, of ${images}`)
  }
  return { ...list, releases: list.releases.map((entry) => (found.includes(entry) ? change(entry) : entry)) }
}

/**
 * Gives the list as issued at `nowMs`, or a second after it was last, whichever is later, in its one form. Throws CliError when
 * it is dated into the future: whoever signed it, or this machine, has a wrong clock. Throws FormatError for what is no list.
 */
export function issueList({ releases, issued_at }: ReleaseList, nowMs: number): ReleaseList {
  const lastMs = millisecondsOf(issued_at)
  if (lastMs > nowMs + LIST_SKEW_MS_MAX)
    throw new CliError(
      `the list is dated ${issued_at}, which is in the future: is the clock of this machine right?`,
    )
  return parseReleaseList({ issued_at: formatTime(Math.max(nowMs, lastMs + 1_000)), releases })
}

/** A list of nothing, older than any. */
export const EMPTY_LIST: ReleaseList = { issued_at: formatTime(0), releases: [] }

/** Gives the time that is written as `now` or as 2026-11-21T14:00:00Z, in the latter form. Throws CliError. */
export function parseListTime(text: string, nowMs: number): string {
  if (text === 'now') return formatTime(nowMs)
  try {
    return timeOf(text, 'the time')
  } catch (fault) {
    if (!(fault instanceof FormatError)) throw fault
    throw new CliError(
      `expected a time such as 2026-11-21T14:00:00Z, or now, got ${printable(text)}`,
      EXIT_CODES.usage,
    )
  }
}

function isNamed({ release }: ReleaseEntry, name: string): boolean {
  if (release.version === name) return true
  if (name.length < ABBREVIATION_MIN) return false
  return release.git_commit.startsWith(name) || release.measurements.PCR0.startsWith(name)
}
