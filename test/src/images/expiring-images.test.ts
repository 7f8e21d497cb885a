import { randomBytes } from 'node:crypto'
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  createFileStore,
  type KeptImage,
  StoreFullError,
  SWEEP_INTERVAL_MS,
} from '../../../src/images/expiring-images.ts'

const TTL_MS = 60_000
const BYTES_MAX = 1000
const PNG = { type: 'png' } as const

let folder = ''
let nowMs = 0
beforeEach(async () => {
  folder = join(await mkdtemp(join(tmpdir(), 'affidavit-test-')), 'images')
  nowMs = Date.now()
})
afterEach(() => rm(join(folder, '..'), { recursive: true }))

const optionsOf = () => ({
  folder,
  ttlMs: TTL_MS,
  bytesMax: BYTES_MAX,
  now: () => nowMs,
  random: randomBytes,
})
const open = () => createFileStore(optionsOf())
const piecesOf = async (image: KeptImage | null) => (await (await image?.open())?.toArray()) ?? []
const filesIn = (name: string) => readdir(join(folder, name))
const some = (length: number) => new Uint8Array(randomBytes(length))

describe('a file store', () => {
  it('a file store gives back what was put, also after a restart, for this user alone', async () => {
    const bytes = some(100)
    const id = await open().put({ bytes, ...PNG })
    expect(id).toMatch(/^[0-9a-f]{32}$/)
    const found = await open().find(id)
    expect(Buffer.concat(await piecesOf(found))).toEqual(Buffer.from(bytes))
    expect(found).toMatchObject({ type: 'png', length: 100, expiresAtMs: nowMs + TTL_MS })
    const [name = ''] = await filesIn('contents')
    expect((await stat(join(folder, 'contents', name))).mode & 0o777).toBe(0o600)
    expect((await stat(join(folder, 'contents'))).mode & 0o777).toBe(0o700)
  })

  it('a file store gives a large image a piece at a time, to its end although it is removed meanwhile', async () => {
    const store = createFileStore({ ...optionsOf(), bytesMax: 10_000_000 })
    const bytes = some(3_000_000)
    const found = await store.find(await store.put({ bytes, ...PNG }))
    const content = await found?.open()
    await rm(join(folder, 'contents'), { recursive: true })
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
    expect(await filesIn('contents')).toHaveLength(1)
  })

  it.each([
    '',
    '..',
    '../contents/x',
    'a'.repeat(64),
    'A'.repeat(32),
    `${'a'.repeat(32)}\0`,
    '0'.repeat(32),
  ])('a file store finds nothing behind %j', async (id) => {
    const store = open()
    await store.put({ bytes: some(10), ...PNG })
    expect(await store.find(id)).toBeNull()
  })

  it('a file store does not find a content by its hash', async () => {
    const store = open()
    await store.put({ bytes: some(10), ...PNG })
    const [hash = ''] = await filesIn('contents')
    expect(await store.find(hash)).toBeNull()
    expect(await store.find(hash.slice(0, 32))).toBeNull()
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
    expect(await filesIn('links')).toEqual([second])
    expect(await store.find(second)).not.toBeNull()
    nowMs += TTL_MS + SWEEP_INTERVAL_MS
    await store.sweep()
    expect([await filesIn('links'), await filesIn('contents')]).toEqual([[], []])
  })

  it('the file store keeps no more than it may, counts what was there before, and takes more when it has room', async () => {
    await open().put({ bytes: some(600), ...PNG })
    const store = open()
    await expect(store.put({ bytes: some(401), ...PNG })).rejects.toThrow(StoreFullError)
    await store.put({ bytes: some(400), ...PNG })
    await expect(store.put({ bytes: some(1), ...PNG })).rejects.toThrow(StoreFullError)
    nowMs += TTL_MS + SWEEP_INTERVAL_MS
    await store.sweep()
    await store.put({ bytes: some(1000), ...PNG })
  })

  it('a file store removes drafts that a killed process left, and takes no broken link', async () => {
    const store = open()
    await store.put({ bytes: some(10), ...PNG })
    await writeFile(join(folder, 'drafts', 'x'), 'half')
    const id = '1'.repeat(32)
    await writeFile(join(folder, 'links', id), '{"name":"../../x","type":"png","expiresAtMs":9e15}')
    expect(await store.find(id)).toBeNull()
    nowMs += TTL_MS + 1000
    await store.sweep()
    expect(await filesIn('drafts')).toEqual([])
  })

  it('a file store makes no folder before it is needed', async () => {
    const store = open()
    await store.sweep()
    expect(await store.find('0'.repeat(32))).toBeNull()
    await expect(stat(folder)).rejects.toMatchObject({ code: 'ENOENT' })
  })
})
