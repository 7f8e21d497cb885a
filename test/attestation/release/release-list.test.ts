import { expect, it } from 'vitest'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import {
  checkNotRolledBack,
  entryOf,
  parseReleaseList,
  parseSignedReleaseList,
  REASON_LENGTH_MAX,
  RELEASES_MAX,
} from '#attestation/release/release-list.ts'
import { faultOf, LIST_JSON, RELEASE_JSON, SIGNED_LIST, SIGNED_RELEASE } from './release-vectors.ts'

const list = LIST_JSON.list as JsonObject
const entry = (list.releases as readonly JsonObject[])[0] as JsonObject

const parseWith = (parts: JsonObject) => () =>
  parseReleaseList({ ...list, releases: [{ ...entry, ...parts }] })

it('a signed list of releases is read as it is written', () => {
  expect(parseSignedReleaseList(LIST_JSON)).toEqual(LIST_JSON)
})

it.each<[string, Json]>([
  ['one release', RELEASE_JSON],
  ['a later version', { ...LIST_JSON, format: 'affidavit-releases/v2' }],
  ['no object', null],
])('a signed list is refused for its format when it is %s', (_, json) => {
  expect(faultOf(() => parseSignedReleaseList(json))?.code).toBe('unknown_release_format')
})

it('a list of releases with an unknown member is refused', () => {
  expect(faultOf(() => parseSignedReleaseList({ ...LIST_JSON, note: '' }))?.code).toBe(
    'invalid_release',
  )
  expect(faultOf(() => parseReleaseList({ ...list, note: '' }))?.code).toBe('invalid_release')
})

it('a list of releases may be empty', () => {
  expect(parseReleaseList({ ...list, releases: [] }).releases).toEqual([])
})

it.each<[string, JsonObject]>([
  ['accepted_from', { accepted_from: 0 }],
  ['accepted_from', { accepted_from: '' }],
  ['accepted_until', { accepted_until: '2026-11-22' }],
  [
    'accepted_until',
    { accepted_from: '2026-11-22T00:00:00Z', accepted_until: '2026-11-22T00:00:00Z' },
  ],
  [
    'accepted_until',
    { accepted_from: '2026-11-22T00:00:00Z', accepted_until: '2026-11-21T00:00:00Z' },
  ],
  ['revoked', { revoked: true }],
  ['revoked', { revoked: { at: '2026-11-21T00:00:00Z' } }],
  ['revoked.at', { revoked: { at: 'now', reason: 'a reason' } }],
  ['revoked.reason', { revoked: { at: '2026-11-21T00:00:00Z', reason: '' } }],
  ['revoked.reason', { revoked: { at: '2026-11-21T00:00:00Z', reason: 'two\nlines' } }],
  [
    'revoked.reason',
    { revoked: { at: '2026-11-21T00:00:00Z', reason: 'x'.repeat(REASON_LENGTH_MAX + 1) } },
  ],
  ['release.version', { release: { ...(entry.release as JsonObject), version: '' } }],
  ['', { note: '' }],
])('a list of releases is refused at %s of an entry: %j', (name, parts) => {
  const fault = faultOf(parseWith(parts))
  expect(fault?.code).toBe('invalid_release')
  expect(fault?.message).toContain(`list.releases.0${name === '' ? '' : `.${name}`}`)
})

it('a list of releases with one image twice is refused', () => {
  const fault = faultOf(() => parseReleaseList({ ...list, releases: [entry, entry] }))
  expect(fault?.message).toContain('PCR0')
})

it(`a list of over ${RELEASES_MAX} releases is refused`, () => {
  const releases = Array.from({ length: RELEASES_MAX + 1 }, () => entry)
  expect(faultOf(() => parseReleaseList({ ...list, releases }))?.message).toContain('list.releases')
})

it('a release by itself is accepted at any time', () => {
  expect(entryOf(SIGNED_RELEASE.release)).toMatchObject({
    accepted_from: null,
    accepted_until: null,
    revoked: null,
  })
})

const issuedMs = Date.parse(SIGNED_LIST.list.issued_at)

it('a list that is older than the reader’s is refused, and the same or a newer list is not', () => {
  expect(faultOf(() => checkNotRolledBack(SIGNED_LIST.list, issuedMs + 1))?.code).toBe(
    'release_list_older',
  )
  checkNotRolledBack(SIGNED_LIST.list, issuedMs)
  checkNotRolledBack(SIGNED_LIST.list, issuedMs - 1)
})

it('a reader that keeps nothing does not notice an older list', () => {
  checkNotRolledBack(SIGNED_LIST.list, Number.NEGATIVE_INFINITY)
})
