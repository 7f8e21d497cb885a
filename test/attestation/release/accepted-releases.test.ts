import { expect, it } from 'vitest'
import { acceptedMeasurements, entryOf, matchRelease } from '#attestation/release/release-list.ts'
import { buildEntry, buildOtherRelease, buildRelease } from '../../support/build-release.ts'
import { PCR_VALUES } from '../../support/nitro-builder/document-builder.ts'
import { SIGNED_LIST } from './release-vectors.ts'

const at = (time: string) => Date.parse(time)
const versionsOf = (time: number) => {
  const { accepted, refused } = acceptedMeasurements(SIGNED_LIST.list.releases, time)
  return {
    accepted: accepted.map(({ release }) => release.version),
    refused: refused.map(({ release, reason }) => [release.version, reason]),
  }
}

it.each([
  [
    '2026-11-21T14:59:59Z',
    ['1.3.9'],
    [
      ['1.4.0', 'not_yet'],
      ['1.3.8', 'revoked'],
    ],
  ],
  ['2026-11-21T15:00:00Z', ['1.4.0', '1.3.9'], [['1.3.8', 'revoked']]],
  [
    '2026-11-22T00:00:00Z',
    ['1.4.0'],
    [
      ['1.3.9', 'expired'],
      ['1.3.8', 'revoked'],
    ],
  ],
  [
    '1970-01-01T00:00:00Z',
    ['1.3.9'],
    [
      ['1.4.0', 'not_yet'],
      ['1.3.8', 'revoked'],
    ],
  ],
])('the releases that are accepted in a document made at %s are %j', (time, accepted, refused) => {
  expect(versionsOf(at(time))).toEqual({ accepted, refused })
})

it('the time of a release begins and ends to the millisecond', () => {
  expect(versionsOf(at('2026-11-22T00:00:00Z') - 1).accepted).toContain('1.3.9')
  expect(versionsOf(at('2026-11-21T15:00:00Z') - 1).accepted).not.toContain('1.4.0')
})

it('a release with a beginning or an end is not accepted at a time that is no number', () => {
  expect(versionsOf(Number.NaN).accepted).toEqual([])
})

it('the refusal of a release says why, with the time of its end or revocation', () => {
  const { refused } = acceptedMeasurements(SIGNED_LIST.list.releases, at('2027-01-01T00:00:00Z'))
  expect(refused.map(({ message }) => message)).toEqual([
    expect.stringContaining(
      'release 1.3.9 (commit 0123456789abcdef0123456789abcdef01234567) was accepted until 2026-11-22T00:00:00Z',
    ),
    expect.stringContaining('was revoked at 2026-11-20T00:00:00Z: the parser of answers'),
  ])
})

it('a release gives its measurements as a policy takes them, with PCR8 only for a signed image', () => {
  const { accepted } = acceptedMeasurements(SIGNED_LIST.list.releases, at('2026-11-21T20:00:00Z'))
  expect(accepted.map(({ measurements }) => [...measurements.keys()])).toEqual([
    [0, 1, 2, 8],
    [0, 1, 2],
  ])
  expect(accepted[0]?.measurements.get(8)).toEqual(new Uint8Array(48).fill(0xa8))
})

const document = { pcrs: PCR_VALUES, timestampMs: at('2026-11-21T20:00:00Z') }

it('a document belongs to the release whose measurements it has', () => {
  const match = matchRelease(document, [entryOf(buildOtherRelease()), entryOf(buildRelease())])
  expect(match).toMatchObject({ kind: 'accepted', release: { version: '1.4.0' } })
  expect(matchRelease(document, [entryOf(buildOtherRelease())])).toEqual({ kind: 'unknown' })
  expect(matchRelease(document, [])).toEqual({ kind: 'unknown' })
})

it('a document is refused when its image is revoked, even if it is accepted under another name', () => {
  const revoked = { at: '2026-11-21T19:00:00Z', reason: 'a reason' }
  const { measurements } = buildRelease()
  const renamed = buildEntry({ release: buildRelease({ version: '9.9.9' }) })
  const lesser = buildRelease({ measurements: { ...measurements, PCR8: 'ab'.repeat(48) } })
  for (const entries of [
    [renamed, buildEntry({ revoked })],
    [buildEntry({ revoked }), renamed],
    [renamed, buildEntry({ release: lesser, revoked })],
  ])
    expect(matchRelease(document, entries)).toMatchObject({ kind: 'refused', reason: 'revoked' })
})

it('a release on its own accepts a document although its entry in a list beside it has ended', () => {
  const ended = buildEntry({ accepted_until: '2026-01-01T00:00:00Z' })
  expect(matchRelease(document, [ended, entryOf(buildRelease())]).kind).toBe('accepted')
})
