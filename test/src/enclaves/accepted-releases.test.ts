import { writeFileSync } from 'node:fs'
import { mkdtemp, readFile, rename, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { encodeHex } from '#attestation/bytes.ts'
import { RELEASE_FILE_BYTES_MAX } from '#attestation/release/release.ts'
import { releaseKeyOf } from '#attestation/release/release-signatures.ts'
import { signReleaseList } from '#attestation/release/verify-release.ts'
import {
  type AcceptedReleases,
  openAcceptedReleases,
  type RecordReleases,
} from '#src/enclaves/accepted-releases.ts'
import { createLogger } from '#src/observability/logger.ts'
import { entryNamed } from '../../support/enclave-fleet.ts'

const SECRET = new Uint8Array(32).fill(3)
const keys = [encodeHex(releaseKeyOf(SECRET))]
let folder = ''
let file = ''
let lines: string[] = []
let opened: AcceptedReleases | null = null

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-releases-'))
  file = join(folder, 'releases.json')
  lines = []
})
afterEach(async () => {
  opened?.stop()
  opened = null
  await rm(folder, { recursive: true, force: true })
})

const textOf = (issuedAt: string, names: readonly string[], secret = SECRET) =>
  JSON.stringify(
    signReleaseList(
      { issued_at: issuedAt, releases: names.map((name) => entryNamed(name)) },
      secret,
    ),
  )

async function open(recordReleases?: RecordReleases, pollMs = 20): Promise<AcceptedReleases> {
  const log = createLogger({
    level: 'info',
    destination: { write: (line) => void lines.push(line) },
  })
  opened = await openAcceptedReleases({ file, keys }, { log, pollMs, recordReleases })
  return opened
}

const versionsOf = (releases: AcceptedReleases) =>
  releases.entries()?.map(({ release }) => release.version)

it('openAcceptedReleases notices a list that is replaced right after the first read', async () => {
  const [first, next] = ['01', '02'].map((day) => textOf(`2026-01-${day}T00:00:00Z`, [day]))
  for (let round = 0; round < 3; round++) {
    const all: AcceptedReleases[] = []
    for (let place = 0; place < 8; place++) {
      file = join(folder, `list-${place}`)
      writeFileSync(file, first ?? '')
      all.push(await open())
      writeFileSync(file, next ?? '')
    }
    await expect.poll(() => new Set(all.flatMap(versionsOf))).toEqual(new Set(['1.0.2']))
    for (const releases of all) releases.stop()
  }
})

it('openAcceptedReleases rejects what is not there, is no list, is too large, or is signed by somebody else', async () => {
  await expect(open()).rejects.toThrow('ENOENT')
  await writeFile(file, '{"format":"affidavit-releases/v1"}')
  await expect(open()).rejects.toMatchObject({ code: 'invalid_release' })
  await writeFile(file, textOf('2026-01-01T00:00:00Z', ['01'], new Uint8Array(32).fill(4)))
  await expect(open()).rejects.toMatchObject({ code: 'release_not_signed' })
  await writeFile(file, textOf('2026-01-01T00:00:00Z', ['01']).replace('1.0.1', '1.0.9'))
  await expect(open()).rejects.toMatchObject({ code: 'release_signature' })
  await truncate(file, RELEASE_FILE_BYTES_MAX + 1)
  await expect(open()).rejects.toThrow('expected a list of at most')
})

it('openAcceptedReleases takes a newer list when the file is written, or replaced, and says so', async () => {
  await writeFile(file, textOf('2026-01-01T00:00:00Z', ['01']))
  const releases = await open()
  let changes = 0
  releases.onChange(() => void changes++)
  await writeFile(file, textOf('2026-01-01T00:00:01Z', ['02', '03']))
  await expect.poll(() => versionsOf(releases), { timeout: 10_000 }).toEqual(['1.0.2', '1.0.3'])
  await writeFile(join(folder, 'next'), textOf('2026-01-01T00:00:02Z', ['04']))
  await rename(join(folder, 'next'), file)
  await expect.poll(() => versionsOf(releases), { timeout: 10_000 }).toEqual(['1.0.4'])
  expect(changes).toBeGreaterThanOrEqual(2)
})

it('administrators get a note of the list that was taken into use, which is used also without it', async () => {
  await writeFile(file, textOf('2026-01-01T00:00:00Z', ['01']))
  const recorded: unknown[] = []
  const recordReleases = (facts: unknown) => {
    recorded.push(facts)
    return Promise.reject(new Error('database away'))
  }
  // It looks at the file only on a reload: one more look would be one more note.
  const releases = await open(recordReleases, 600_000)
  await writeFile(file, textOf('2026-01-01T00:00:01Z', ['02', '03']))
  await releases.reload()
  expect(versionsOf(releases)).toEqual(['1.0.2', '1.0.3'])
  const record = { file, issued_at: '2026-01-01T00:00:01Z', releases: 2 }
  expect(recorded).toEqual([record])
  expect(lines.join('')).toContain('is not noted')
  await writeFile(file, '{')
  await releases.reload()
  expect(recorded).toEqual([record])
})

it('openAcceptedReleases keeps the list that there was when the next is older, broken or gone, and logs that', async () => {
  await writeFile(file, textOf('2026-01-02T00:00:00Z', ['01']))
  const releases = await open()
  expect(releases.isCurrent()).toBe(true)
  for (const text of [
    textOf('2026-01-01T00:00:00Z', ['02']),
    '{',
    `${await readFile(file, 'utf8')}x`,
  ]) {
    lines = []
    await writeFile(file, text)
    await releases.reload()
    expect([versionsOf(releases), lines.join(), releases.isCurrent()]).toEqual([
      ['1.0.1'],
      expect.stringContaining('not read'),
      false,
    ])
  }
  await rm(file)
  await releases.reload()
  expect(versionsOf(releases)).toEqual(['1.0.1'])
  await writeFile(file, textOf('2026-01-03T00:00:00Z', ['01']))
  await releases.reload()
  expect(releases.isCurrent()).toBe(true)
})
