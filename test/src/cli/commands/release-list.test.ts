import { readFile, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { buildOtherRelease, buildRelease } from '../../../support/build-release.ts'
import {
  OPERATOR_KEY,
  OPERATOR_SECRET,
  openReleaseStage,
  type ReleaseStage,
  STRANGER_SECRET,
} from '../../../support/release-stage.ts'
import { runCommand } from '../../../support/run-command.ts'
import { pemOf } from '../../../support/secret-key-pem.ts'

let stage: ReleaseStage
let key: string
let strangersKey: string
let list: string
let manifest: string

beforeAll(async () => {
  stage = await openReleaseStage()
  key = stage.path('operator.key')
  strangersKey = stage.path('stranger.key')
  await writeFile(key, pemOf(OPERATOR_SECRET), { mode: 0o600 })
  await writeFile(strangersKey, pemOf(STRANGER_SECRET), { mode: 0o600 })
  manifest = await stage.saveRelease('measurements.json', buildRelease())
})
afterAll(() => stage.close())

let number = 0
beforeEach(() => {
  list = stage.path(`releases-${number++}.json`)
})

const run = (...words: readonly string[]) => runCommand('release', 'list', ...words, '--key', key)
const readList = async () => JSON.parse(await readFile(list, 'utf8'))

/** What `show` says of each release of the list, in documents made then. */
async function statuses(at: string): Promise<readonly string[]> {
  const { stdout } = await runCommand('release', 'show', list, '--at', at, '--json')
  return JSON.parse(stdout).list.releases.map((entry: { status: string }) => entry.status)
}

describe('affidavit release list', () => {
  it('release list makes a list of the first release, and dates each change later than the one before', async () => {
    expect((await run('add', list, manifest, '--from', '2026-03-01T00:00:00Z')).code).toBe(0)
    const first = await readList()
    expect(first).toMatchObject({
      format: 'affidavit-releases/v1',
      list: {
        releases: [{ accepted_from: '2026-03-01T00:00:00Z', accepted_until: null, revoked: null }],
      },
      signatures: [{ public_key: OPERATOR_KEY }],
    })
    const other = await stage.saveRelease('other.json', buildOtherRelease())
    await run('add', list, other)
    const second = await readList()
    expect(second.list.releases).toHaveLength(2)
    expect(second.list.issued_at > first.list.issued_at).toBe(true)
  })

  it('release list revokes a release for all times, once, with a reason', async () => {
    await run('add', list, manifest)
    const { code } = await run('revoke', list, '1.4.0', '--reason', 'it signs anything')
    expect(code).toBe(0)
    expect((await readList()).list.releases[0].revoked).toEqual({
      at: expect.stringMatching(/Z$/),
      reason: 'it signs anything',
    })
    expect(await statuses('1970-01-01T00:00:00Z')).toEqual(['revoked'])
    const again = await run('revoke', list, '1.4.0', '--reason', 'another reason')
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('already')])
    const { stdout } = await runCommand('release', 'show', list)
    expect(stdout).toContain('it signs anything')
  })

  it('release list changes no list that was changed or signed by somebody else', async () => {
    await run('add', list, manifest)
    const signed = await readList()
    const opened = signed.list.releases.map((entry: object) => ({
      ...entry,
      accepted_until: '2031-01-01T00:00:00Z',
    }))
    await writeFile(list, JSON.stringify({ ...signed, list: { ...signed.list, releases: opened } }))
    const changed = await run('revoke', list, '1.4.0', '--reason', 'a reason')
    expect([changed.code, changed.stderr]).toEqual([
      1,
      expect.stringContaining('release_signature'),
    ])
    const words = ['release', 'list', 'end', list, '1.4.0', '--at', 'now', '--key', strangersKey]
    const strange = await runCommand(...words)
    expect([strange.code, strange.stderr]).toEqual([
      1,
      expect.stringContaining('release_not_signed'),
    ])
  })

  const place = () => stage.path('list.json')
  const backwards = ['--from', '2026-03-02T00:00:00Z', '--until', '2026-03-01T00:00:00Z']
  it.each([
    ['an end before the beginning', 2, () => ['add', list, manifest, ...backwards]],
    ['a time of another form', 2, () => ['add', list, manifest, '--from', 'tomorrow']],
    ['a list in the place of a release', 2, () => ['add', list, place()]],
    ['a release in the place of a list', 2, () => ['add', manifest, manifest]],
    ['a list that is not there', 3, () => ['revoke', stage.path('none'), '1.4.0', '--reason', 'x']],
    ['a revocation without a reason', 2, () => ['revoke', list, '1.4.0']],
    ['a reason of two lines', 2, () => ['revoke', place(), '1.4.0', '--reason', 'a\nb']],
    ['a release that is not in the list', 1, () => ['end', place(), '9.9.9', '--at', 'now']],
    ['an end without a time', 2, () => ['end', list, '1.4.0']],
  ])('release list refuses %s', async (_, code, words) => {
    await stage.saveList('list.json', [
      { release: buildRelease(), accepted_from: null, accepted_until: null, revoked: null },
    ])
    expect((await run(...words())).code).toBe(code)
  })
})
