import { randomBytes } from 'node:crypto'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { openBucket } from '#src/images/bucket.ts'
import { createImageStore, type KeptImage, StoreFullError } from '#src/images/image-store.ts'
import { createImages } from '#src/images/images.ts'
import {
  refuse,
  S3_KEY,
  type S3Server,
  signatureOf,
  startS3Server,
} from '../../support/s3-server.ts'

const HOUR_MS = 3_600_000
const TTL_MS = 2 * HOUR_MS
const MARGIN_MS = 900_000
const PNG = { type: 'png' } as const

let server: S3Server
let clock: { nowMs: number }
const closers: (() => Promise<void>)[] = []
beforeEach(async () => {
  server = await startS3Server()
  clock = { nowMs: 500_000 * HOUR_MS + 5_000 }
})
afterEach(async () => {
  for (const close of closers.splice(0)) await close()
  await server.stop()
})

type Changes = {
  readonly secret?: string
  readonly origin?: string
  readonly bytesMax?: number
  readonly timeMs?: number
  readonly connectionsMax?: number
}

/** A store as a gateway has it: all on one bucket. */
function openStore({
  secret,
  origin,
  bytesMax = 1_000_000,
  timeMs = 5_000,
  connectionsMax = 8,
}: Changes = {}) {
  const url = `${origin ?? server.origin}/images/affidavit`
  const key = { ...S3_KEY, ...(secret === undefined ? {} : { secretAccessKey: secret }) }
  const objects = openBucket(
    { url, ...key },
    { answerMs: timeMs, requestMs: timeMs, connectionsMax },
  )
  closers.push(() => objects.close())
  return createImageStore({ objects, bytesMax, ttlMs: TTL_MS, now: () => clock.nowMs })
}

const some = (length: number) => new Uint8Array(randomBytes(length))
const readAll = async (image: KeptImage | null) =>
  Buffer.concat((await (await image?.open())?.toArray()) ?? [])
const keys = () => [...server.objects.keys()].toSorted()

/** Puts an image, and gives its id and the object with its bytes. */
async function putSome(length = 200_000) {
  const bytes = some(length)
  const id = await openStore().put({ bytes, ...PNG })
  const object = [...server.objects].find(([key]) => key.includes('/content-'))?.[1]
  if (object === undefined) throw new Error('expected a content')
  return { id, bytes, object }
}

it('the server of these tests signs as AWS does: the example of its documentation', () => {
  const hashed = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'
  const headers = {
    host: 'examplebucket.s3.amazonaws.com',
    range: 'bytes=0-9',
    'x-amz-content-sha256': hashed,
    'x-amz-date': '20130524T000000Z',
  }
  const request = { method: 'GET', url: '/test.txt', headers, names: Object.keys(headers) }
  const secretAccessKey = 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY'
  expect(signatureOf(request, { region: 'us-east-1', secretAccessKey })).toBe(
    'f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41',
  )
})

it('a bucket of images gives at every gateway what another one put, and tells nobody an address', async () => {
  const { id, bytes } = await putSome()
  expect(id).toMatch(/^[0-9a-f]{32}-500000$/)
  const found = await openStore().find(id)
  const expiresAtMs = clock.nowMs + TTL_MS
  expect(found).toMatchObject({ type: 'png', length: bytes.length, expiresAtMs })
  expect((await readAll(found)).equals(bytes)).toBe(true)
  expect(keys().join()).not.toContain(id.slice(0, 32))
  const [link] = [...server.objects].filter(([key]) => key.includes('/link-'))
  expect(link?.[1].bytes.toString()).not.toContain(id.slice(0, 32))
  expect(server.objects.size).toBe(2)
})

it.each(['', '..', '../../x', 'a'.repeat(32), `${'a'.repeat(32)}-1`, `${'A'.repeat(32)}-500000`])(
  'the bucket is asked for nothing behind %j',
  async (id) => {
    expect(await openStore().find(id)).toBeNull()
    expect(server.requests).toEqual([])
  },
)

it('a bucket of images gives nothing behind an id that was never given, nor behind what others wrote', async () => {
  const { id } = await putSome(10)
  expect(await openStore().find(`${'0'.repeat(32)}-500000`)).toBeNull()
  for (const [key, object] of server.objects)
    if (key.includes('/link-')) object.bytes = Buffer.from('{"name":"../../etc/passwd"}')
  expect(await openStore().find(id)).toBeNull()
})

it('a bucket of images is full for a process that put as much as it may, until that is over', async () => {
  const store = openStore({ bytesMax: 1_000 })
  await store.put({ bytes: some(800), ...PNG })
  await expect(store.put({ bytes: some(300), ...PNG })).rejects.toBeInstanceOf(StoreFullError)
  expect(keys()).toHaveLength(2)
  clock.nowMs += HOUR_MS + TTL_MS + MARGIN_MS
  await store.put({ bytes: some(300), ...PNG })
})

it('sweeps of a bucket remove what is over, though several gateways sweep at once, and nothing else', async () => {
  const [one, other] = [openStore(), openStore()]
  for (let count = 0; count < 5; count++) await one.put({ bytes: some(10), ...PNG })
  clock.nowMs += HOUR_MS
  await other.put({ bytes: some(10), ...PNG })
  clock.nowMs += 2 * HOUR_MS
  const kept = await one.put({ bytes: some(10), ...PNG })
  const strange = ['images/other/500000/x', 'images/affidavit/notes.txt', 'others/500000/x']
  const odd = ['images/affidavit/499999-a/x', 'images/affidavit/<&>/x']
  for (const key of [...strange, ...odd])
    server.objects.set(key, { bytes: Buffer.from('x'), type: 'text/plain' })
  expect(keys()).toHaveLength(10 + 2 + 2 + 5)
  await Promise.all([one.sweep(), other.sweep()])
  expect(keys()).toHaveLength(19)
  clock.nowMs += MARGIN_MS
  await Promise.all([one.sweep(), other.sweep()])
  expect(keys()).toHaveLength(9)
  clock.nowMs += HOUR_MS
  await other.sweep()
  expect(keys().filter((key) => ![...strange, ...odd].includes(key))).toHaveLength(2)
  expect(keys()).toHaveLength(7)
  expect(await one.find(kept)).not.toBeNull()
})

const failed = (code: string) => ({ name: 'ImageStoreError', code })
const fault = (status: number, code: string, times = Number.POSITIVE_INFINITY) => {
  let left = times
  server.script = (request, response) => {
    if (left-- <= 0) return false
    request.resume()
    refuse(response, status, code)
    return true
  }
}

it('a bucket with a wrong key is told by its code, at once and without the secret', async () => {
  const put = openStore({ secret: 'wrong-marmalade' }).put({ bytes: some(10), ...PNG })
  await expect(put).rejects.toMatchObject(failed('SignatureDoesNotMatch'))
  await expect(put).rejects.not.toThrow(/marmalade/)
  expect(server.requests).toHaveLength(1)
})

it('a bucket is asked again while it is busy, a few times', async () => {
  fault(503, 'SlowDown', 2)
  const id = await openStore().put({ bytes: some(10), ...PNG })
  expect(await openStore().find(id)).not.toBeNull()
  fault(503, 'SlowDown')
  server.requests.splice(0)
  await expect(openStore().find(id)).rejects.toMatchObject(failed('SlowDown'))
  expect(server.requests).toHaveLength(3)
})

it('a bucket that fails is told of to callers without what it said', async () => {
  fault(403, 'AccessDenied')
  const images = createImages({ sources: [], store: openStore(), now: Date.now })
  await expect(images.find(`${'0'.repeat(32)}-500000`)).rejects.toMatchObject({
    code: 'not_ready',
    status: 503,
    message: expect.not.stringContaining('AccessDenied'),
  })
})

it('a bucket that does not answer, or is away, keeps nobody waiting', async () => {
  server.script = (request) => Boolean(request.resume())
  const slow = openStore({ timeMs: 300 })
  await expect(slow.put({ bytes: some(10), ...PNG })).rejects.toMatchObject(failed('timeout'))
  await expect(slow.find(`${'0'.repeat(32)}-500000`)).rejects.toMatchObject(failed('timeout'))
  await expect(slow.sweep()).rejects.toMatchObject(failed('timeout'))
  const away = openStore({ origin: 'http://127.0.0.1:9' })
  await expect(away.put({ bytes: some(10), ...PNG })).rejects.toMatchObject(failed('ECONNREFUSED'))
})

it('a request to the bucket that waits for a free connection ends in time', async () => {
  const { id } = await putSome(900_000)
  const store = openStore({ timeMs: 2_000, connectionsMax: 1 })
  const unread = await (await store.find(id))?.open()
  expect(unread).not.toBeNull()
  await expect(store.put({ bytes: some(10), ...PNG })).rejects.toMatchObject(failed('timeout'))
  unread?.on('error', () => undefined).destroy()
  await store.put({ bytes: some(10), ...PNG })
})

it('a bucket gives no image of another length, or that is not there any more', async () => {
  const { id, object } = await putSome(100)
  const found = await openStore().find(id)
  object.bytes = object.bytes.subarray(1)
  await expect(found?.open()).rejects.toMatchObject(failed('WrongLength'))
  for (const key of keys()) if (key.includes('/content-')) server.objects.delete(key)
  expect(await found?.open()).toBeNull()
})

it('a bucket never gives another content whole', async () => {
  const { id, object } = await putSome()
  const last = object.bytes.at(-1) ?? 0
  object.bytes = Buffer.concat([object.bytes.subarray(0, -1), Buffer.of(last ^ 1)])
  const image = await (await openStore().find(id))?.open()
  let length = 0
  const reading = async () => {
    for await (const piece of image ?? []) length += piece.length
  }
  await expect(reading()).rejects.toMatchObject(failed('WrongContent'))
  expect(length).toBeLessThan(200_000)
})

it('a bucket that breaks off within an image breaks it off for its reader', async () => {
  const { id, object } = await putSome()
  const found = await openStore().find(id)
  server.script = (_, response) => {
    response.writeHead(200, { 'content-length': object.bytes.length })
    response.write(object.bytes.subarray(0, 100_000), () => response.destroy())
    return true
  }
  await expect(readAll(found)).rejects.toThrow()
})
