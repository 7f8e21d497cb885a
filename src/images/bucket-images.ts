import { createHash, hash } from 'node:crypto'
import { type Readable, Transform } from 'node:stream'
import { type Bucket, BucketError } from './bucket.ts'
import {
  type ImageStore,
  type Link,
  readLink,
  StoreFullError,
  type SweptImageStore,
} from './expiring-images.ts'
import { mediaTypeOf } from './image-facts.ts'

/**
 * How long all that is put at one time goes into one folder of the bucket. What is in a folder is
 * over `ttlMs` after the folder's time is.
 */
const FOLDER_MS = 3_600_000

/** How much longer a folder stays: clocks of gateways may differ by so much. */
const CLOCKS_MS = 900_000

/** How often folders that are over are looked for, by each gateway. */
export const BUCKET_SWEEP_INTERVAL_MS = 600_000

/** Objects that one sweep removes; the next goes on. */
const REMOVED_MAX = 10_000
/** Removals at once. */
const REMOVALS_MAX = 16

const LINK_BYTES_MAX = 1024

type BucketStoreOptions = {
  readonly bucket: Bucket
  /** How long a link lasts. */
  readonly ttlMs: number
  /** Bytes that this process may have put and that are not over. */
  readonly bytesMax: number
  /** Unix milliseconds. */
  readonly now: () => number
  /** So many unpredictable bytes. */
  readonly random: (length: number) => Uint8Array
}

/**
 * Store of images in a bucket, for any number of gateways. `HOUR/content-SHA256` has an image,
 * `HOUR/link-SHA256`, of the id, a link to it: a reader of the bucket's keys learns no address. The
 * hour is that of putting and part of the id, so that an hour that is over gets no more objects
 * from any gateway: gateways remove it whole, all of them, without asking one another. The prefix
 * is the store's own: other objects in it may be removed, or hide what is to be removed.
 */
export function createBucketStore(options: BucketStoreOptions): SweptImageStore {
  const { bucket, ttlMs, bytesMax, now, random } = options
  /** What this process has put, by hour. */
  const bytesPut = new Map<number, number>()
  const isOver = (hour: number) => now() >= (hour + 1) * FOLDER_MS + ttlMs + CLOCKS_MS

  function count(hour: number, length: number): void {
    for (const each of bytesPut.keys()) if (isOver(each)) bytesPut.delete(each)
    const kept = [...bytesPut.values()].reduce((sum, bytes) => sum + bytes, 0)
    if (kept + length > bytesMax) throw new StoreFullError()
    bytesPut.set(hour, (bytesPut.get(hour) ?? 0) + length)
  }

  async function put({ bytes, type }: Parameters<ImageStore['put']>[0]): Promise<string> {
    const hour = Math.floor(now() / FOLDER_MS)
    count(hour, bytes.length)
    const name = hash('sha256', bytes, 'hex')
    const id = `${Buffer.from(random(ID_BYTES)).toString('hex')}-${hour}`
    const link: Link = { name, type, length: bytes.length, expiresAtMs: now() + ttlMs }
    try {
      await bucket.put(contentKey(hour, name), { bytes, type: mediaTypeOf(type) })
      const text = Buffer.from(JSON.stringify(link))
      await bucket.put(linkKey(hour, id), { bytes: text, type: 'application/json' })
    } catch (error) {
      count(hour, -bytes.length)
      throw error
    }
    return id
  }

  /** Folders that are over, oldest first. */
  async function* listOver(): AsyncGenerator<string> {
    let after = ''
    for (;;) {
      const folders = await bucket.list('', { after, kind: 'folders' })
      for (const folder of folders) {
        const [, hour] = HOUR_FOLDER.exec(folder) ?? []
        if (hour !== undefined && isOver(Number(hour))) yield folder
      }
      const last = folders.at(-1)
      if (last === undefined || last < after) return
      // Behind all that is in that folder: `0` comes next to the slash.
      after = last.replace(/\/$/, '0')
    }
  }

  return {
    put,
    async find(id) {
      const [, hour] = ID.exec(id) ?? []
      if (hour === undefined) return null
      const text = await bucket.read(linkKey(Number(hour), id), LINK_BYTES_MAX)
      const link = readLink(text?.toString() ?? '')
      if (link === null || link.expiresAtMs <= now()) return null
      const { name, ...facts } = link
      const open = async () => {
        const content = await bucket.open(contentKey(Number(hour), name), facts.length)
        return content === null ? null : checked(content, name)
      }
      return { ...facts, open }
    },
    async sweep() {
      let removed = 0
      for await (const folder of listOver()) {
        for (;;) {
          const keys = await bucket.list(folder, { after: '', kind: 'objects' })
          if (keys.length === 0) break
          for (let at = 0; at < keys.length; at += REMOVALS_MAX)
            await Promise.all(keys.slice(at, at + REMOVALS_MAX).map((key) => bucket.remove(key)))
          removed += keys.length
          if (removed >= REMOVED_MAX) return
        }
      }
    },
  }
}

const ID_BYTES = 16
const ID = /^[0-9a-f]{32}-(\d{6})$/
const HOUR_FOLDER = /^(\d{6})\/$/

function contentKey(hour: number, name: string): string {
  return `${hour}/content-${name}`
}

function linkKey(hour: number, id: string): string {
  return `${hour}/link-${hash('sha256', id, 'hex')}`
}

/**
 * The content, whose last piece is given when the whole has its hash: another one is broken off,
 * and never whole.
 */
function checked(content: Readable, name: string): Readable {
  const digest = createHash('sha256')
  let held: Uint8Array | null = null
  const check = new Transform({
    transform(piece: Uint8Array, _, done) {
      digest.update(piece)
      const last = held
      held = piece
      done(null, last)
    },
    flush(done) {
      if (digest.digest('hex') === name) done(null, held)
      else done(new BucketError('WrongContent', 'image store: expected the content of its hash'))
    },
  })
  content.on('error', (error) => check.destroy(error))
  check.on('close', () => content.destroy())
  return content.pipe(check)
}
