import { describe, expect, it } from 'vitest'
import { entryOf, type ReleaseList } from '#attestation/release/release-list.ts'
import { CliError } from '#src/cli/faults.ts'
import {
  addRelease,
  changeRelease,
  EMPTY_LIST,
  issueList,
  LIST_SKEW_MS_MAX,
  parseListTime,
} from '#src/cli/release/release-list.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../../../support/build-release.ts'

const current = buildEntry()
const other = entryOf(buildOtherRelease())
const list: ReleaseList = { issued_at: '2026-11-21T14:00:00Z', releases: [current, other] }
const ISSUED_MS = Date.parse(list.issued_at)
const end = (entry: typeof current) => ({ ...entry, accepted_until: '2026-12-01T00:00:00Z' })

describe('a list of releases', () => {
  it('a list of releases takes another release after the others', () => {
    const before = { ...list, releases: [other] }
    expect(addRelease(before, current).releases).toEqual([other, current])
  })

  it('a list of releases does not take an image twice, under whatever version', () => {
    const renamed = entryOf(buildRelease({ version: '2.0.0' }))
    expect(() => addRelease(list, renamed)).toThrow(/already in the list/)
  })

  it.each([
    ['its version', '1.4.0'],
    ['its PCR0', current.release.measurements.PCR0],
    ['the first digits of its PCR0', current.release.measurements.PCR0.slice(0, 7)],
  ])('a change of a list changes the release that is named by %s, and no other', (_, name) => {
    expect(changeRelease(list, name, end).releases).toEqual([end(current), other])
  })

  it.each([
    ['a version that is not there', '1.4'],
    ['a few digits', current.release.measurements.PCR0.slice(0, 6)],
    ['nothing', ''],
    ['a commit that both have', current.release.git_commit],
  ])('a change of a list changes nothing for %s', (_, name) => {
    expect(() => changeRelease(list, name, end)).toThrow(CliError)
  })

  it('a list of releases is issued later than before, even twice within a second or by a slow clock', () => {
    expect(issueList(list, ISSUED_MS + 90_500).issued_at).toBe('2026-11-21T14:01:30Z')
    expect(issueList(list, ISSUED_MS + 200).issued_at).toBe('2026-11-21T14:00:01Z')
    expect(issueList(list, ISSUED_MS - LIST_SKEW_MS_MAX).issued_at).toBe('2026-11-21T14:00:01Z')
    expect(issueList(EMPTY_LIST, ISSUED_MS).issued_at).toBe(list.issued_at)
  })

  it('a list of releases is not issued when the last one is of the future: a clock is wrong', () => {
    expect(() => issueList(list, ISSUED_MS - LIST_SKEW_MS_MAX - 1)).toThrow(/in the future/)
  })
})

describe('a time on the command line', () => {
  it('a time on the command line is the word now, or has the one form', () => {
    expect(parseListTime('now', ISSUED_MS + 999)).toBe(list.issued_at)
    expect(parseListTime('2027-01-31T00:00:00Z', 0)).toBe('2027-01-31T00:00:00Z')
  })

  it.each(['', 'tomorrow', '2027-01-31', '2027-02-30T00:00:00Z', '+275760-09-13T00:00:00Z'])(
    'a time on the command line is refused as %j',
    (text) => {
      expect(() => parseListTime(text, 0)).toThrow(CliError)
    },
  )
})
