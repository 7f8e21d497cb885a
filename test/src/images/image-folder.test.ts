import { randomBytes } from 'node:crypto'
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { openImageFolder } from '#src/images/image-folder.ts'
import { createImageStore, type KeptImage, StoreFullError } from '#src/images/image-store.ts'

const TTL_MS = 60_000
const HOUR_MS = 3_600_000
/** When all that was put is over: the hour of its putting, the link's time, a margin for clocks. */
const OVER_MS = HOUR_MS + TTL_MS + 900_000
const BYTES_MAX = 1000
const PNG = { type: 'png' } as const

let folder = ''
let nowMs = 0
beforeEach(async () => {
  folder = join(await mkdtemp(join(tmpdir(), 'affidavit-test-')), 'images')
  nowMs = 500_000 * HOUR_MS
})
afterEach(() => rm(join(folder, '..'), { recursive: true }))

const open = (bytesMax = BYTES_MAX) =>
  createImageStore({
    objects: openImageFolder(folder),
    ttlMs: TTL_MS,
    bytesMax,
    now: () => nowMs,
  })
const piecesOf = async (image: KeptImage | null) => (await (await image?.open())?.toArray()) ?? []
/** Files of one hour, or of the hour that it is. */
const filesIn = (hour = Math.floor(nowMs / HOUR_MS)) => readdir(join(folder, String(hour)))
const contentsIn = async () => (await filesIn()).filter((name) => name.startsWith('content-'))
const some = (length: number) => new Uint8Array(randomBytes(length))

it('a file store gives back what was put, also after a restart, for this user alone', async () => {
  const bytes = some(100)
  const id = await open().put({ bytes, ...PNG })
  expect(id).toMatch(/^[0-9a-f]{32}-500000$/)
  const found = await open().find(id)
  expect(Buffer.concat(await piecesOf(found))).toEqual(Buffer.from(bytes))
  expect(found).toMatchObject({ type: 'png', length: 100, expiresAtMs: nowMs + TTL_MS })
  expect(await filesIn()).toHaveLength(2)
  for (const name of await filesIn())
    expect((await stat(join(folder, '500000', name))).mode & 0o777).toBe(0o600)
  expect((await stat(join(folder, '500000'))).mode & 0o777).toBe(0o700)
})

it('a file store gives a large image a piece at a time, to its end although it is removed meanwhile', async () => {
  const store = open(10_000_000)
  const bytes = some(3_000_000)
  const found = await store.find(await store.put({ bytes, ...PNG }))
  const content = await found?.open()
  await rm(join(folder, '500000'), { recursive: true })
  const pieces = (await content?.toArray()) ?? []
  expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThanOrEqual(64 * 1024)
  expect(Buffer.concat(pieces).equals(bytes)).toBe(true)
  expect(await found?.open()).toBeNull()
})

it('a file store keeps a content once, under links that differ', async () => {
  const store = open()
  const bytes = some(600)
  const ids = [await store.put({ bytes, ...PNG }), await store.put({ bytes, ...PNG })]
  expect(new Set(ids).size).toBe(2)
  expect(await contentsIn()).toHaveLength(1)
})

it.each([
  '',
  '..',
  '../500000/x',
  'a'.repeat(64),
  `${'A'.repeat(32)}-500000`,
  `${'a'.repeat(32)}-500000\0`,
  `${'0'.repeat(32)}-500000`,
  '0'.repeat(32),
])('a file store finds nothing behind %j', async (id) => {
  const store = open()
  await store.put({ bytes: some(10), ...PNG })
  expect(await store.find(id)).toBeNull()
})

it('a file store does not find a content by its hash', async () => {
  const store = open()
  await store.put({ bytes: some(10), ...PNG })
  const hash = (await contentsIn())[0]?.slice('content-'.length) ?? ''
  expect(hash).toHaveLength(64)
  for (const id of [hash, hash.slice(0, 32), `${hash.slice(0, 32)}-500000`])
    expect(await store.find(id)).toBeNull()
})

it('a file store forgets a link when its time is over, and a content when its last link is', async () => {
  const store = open()
  const bytes = some(600)
  const first = await store.put({ bytes, ...PNG })
  nowMs += TTL_MS - 1
  const second = await store.put({ bytes, ...PNG })
  expect(await store.find(first)).not.toBeNull()
  nowMs += 1
  expect(await store.find(first)).toBeNull()
  await store.sweep()
  expect(await store.find(second)).not.toBeNull()
  nowMs = 500_000 * HOUR_MS + OVER_MS - 1
  expect(await store.find(second)).toBeNull()
  await store.sweep()
  expect(await filesIn(500_000)).toHaveLength(3)
  nowMs += 1
  await store.sweep()
  expect(await readdir(folder)).toEqual([])
})

it('the file store keeps no more than it may, counts what was there before, and takes more when it has room', async () => {
  await open().put({ bytes: some(600), ...PNG })
  const store = open()
  await expect(store.put({ bytes: some(401), ...PNG })).rejects.toThrow(StoreFullError)
  await store.put({ bytes: some(400), ...PNG })
  await expect(store.put({ bytes: some(1), ...PNG })).rejects.toThrow(StoreFullError)
  nowMs += OVER_MS
  await store.sweep()
  await store.put({ bytes: some(1000), ...PNG })
})

it('a file store removes drafts that a killed process left, and takes no broken link', async () => {
  const store = open()
  const id = await store.put({ bytes: some(10), ...PNG })
  for (const name of await filesIn())
    if (name.startsWith('link-'))
      await writeFile(
        join(folder, '500000', name),
        '{"name":"../../x","type":"png","length":1,"expiresAtMs":9e15}',
      )
  await writeFile(join(folder, '500000', 'link-half.draft'), 'half')
  expect(await store.find(id)).toBeNull()
  nowMs += OVER_MS
  await store.sweep()
  expect(await readdir(folder)).toEqual([])
})

it('a file store never gives another content, whole or at all', async () => {
  const store = open()
  const found = await store.find(await store.put({ bytes: some(100), ...PNG }))
  const [name = ''] = await contentsIn()
  await writeFile(join(folder, '500000', name), some(100))
  await expect(piecesOf(found)).rejects.toMatchObject({ code: 'WrongContent' })
  await writeFile(join(folder, '500000', name), some(99))
  await expect(found?.open()).rejects.toMatchObject({ code: 'WrongLength' })
})
