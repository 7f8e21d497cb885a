import { createHash, hash, randomBytes } from 'node:crypto'
import { type Readable, Transform } from 'node:stream'
import { text } from 'node:stream/consumers'
import { IMAGE_TYPES, type ImageType, mediaTypeOf } from './image-facts.ts'

/** An image that is kept. */
export type KeptImage = {
  readonly type: ImageType
  /** Bytes in it. */
  readonly length: number
  /** Unix milliseconds. */
  readonly expiresAtMs: number
  /**
   * Its bytes, a piece at a time: a slow reader shall not hold it in memory. Null when it is gone
   * by now. Read it or destroy it.
   */
  open(): Promise<Readable | null>
}

/** Where images are kept for a while. */
export type ImageStore = {
  /** Keeps an image and gives the id of a new link to it. Throws StoreFullError. */
  put(image: { readonly bytes: Uint8Array; readonly type: ImageType }): Promise<string>
  /**
   * The image behind a link; null when there is no such link, or it has expired. `id` is a caller's
   * text, of any form.
   */
  find(id: string): Promise<KeptImage | null>
  /** Removes what is over. */
  sweep(): Promise<void>
}

/** What a store is made of: a folder (image-folder.ts) or a bucket (bucket.ts). */
export type ImageObjects = {
  /** Places an object whole, in the place of one that is there. */
  put(key: string, object: { readonly bytes: Uint8Array; readonly type: string }): Promise<void>
  /** An object, a piece at a time; null when it does not exist. Read it or destroy it. */
  get(key: string): Promise<{ readonly length: number; readonly body: Readable } | null>
  /** Keys, or folders of keys, in their order; a store may give the first ones alone. */
  list(): Promise<readonly string[]>
  /** Removes an object, or a folder; what does not exist is passed over. */
  remove(key: string): Promise<void>
  /** Keys from before this process, with their lengths. Empty where gateways share the store. */
  measure(): Promise<readonly (readonly [key: string, length: number])[]>
  close(): Promise<void>
}

/** There is no room for another image. */
export class StoreFullError extends Error {
  override readonly name = 'StoreFullError'

  constructor() {
    super('the image store is full')
  }
}

/**
 * Objects cannot be stored or read, or are not what was stored. The message is for the operator: it
 * names the bucket's host and the store's error code.
 */
export class ImageStoreError extends Error {
  override readonly name = 'ImageStoreError'
  /** The store's own code, as `AccessDenied`, or what stood in the way. */
  readonly code: string

  constructor(code: string, message: string, cause?: unknown) {
    super(`image store${message} (${code})`, { cause })
    this.code = code
  }
}

/** How often what is over is looked for, by each gateway. */
export const SWEEP_INTERVAL_MS = 600_000

/** What is put within this time goes into one folder. */
const FOLDER_MS = 3_600_000
/** How much longer a folder stays: clocks of gateways may differ by this much. */
const CLOCKS_MS = 900_000

/** How often the sum of what is kept is brought up to date. */
const FRESH_MS = 60_000

/** Keys that one sweep removes; the next goes on. */
const REMOVED_MAX = 10_000
/** Removals at once. */
const REMOVALS_MAX = 16

const LINK_BYTES_MAX = 1024
const ID_BYTES = 16
const ID = /^[0-9a-f]{32}-(\d{6})$/
const HOUR = /^(\d{6})(?=\/|$)/
const CONTENT_KEY = /^\d{6}\/content-[0-9a-f]{64}$/
/** Form of a SHA-256 in hex. */
const CONTENT_NAME = /^[0-9a-f]{64}$/

type StoreOptions = {
  readonly objects: ImageObjects
  /** How long a link lasts. */
  readonly ttlMs: number
  /** Bytes of all images that are kept, as far as this process knows them. */
  readonly bytesMax: number
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * Store of images, for any number of gateways. `HOUR/content-SHA256` has an image,
 * `HOUR/link-SHA256`, of the id, a link to it: a reader of the keys learns no address. The hour is
 * that of putting and part of the id, so that an hour that is over gets no more objects from any
 * gateway: gateways remove it whole, all of them, without asking one another. The store is for
 * images alone: other objects in it may be removed, or hide what is to be removed.
 */
export function createImageStore({ objects, ttlMs, bytesMax, now }: StoreOptions): ImageStore {
  /** Bytes of each content that is known, by its key, and of all of them. */
  const kept = new Map<string, number>()
  let keptBytes = 0
  /** Until when no content was over at the last look, Unix milliseconds. */
  let freshUntilMs = 0
  let measuring: Promise<void> | null = null

  function isOver(key: string): boolean {
    const [, hour] = HOUR.exec(key) ?? []
    return hour !== undefined && now() >= (Number(hour) + 1) * FOLDER_MS + ttlMs + CLOCKS_MS
  }

  async function measure(): Promise<void> {
    for (const [key, length] of await objects.measure())
      if (CONTENT_KEY.test(key) && !kept.has(key)) keep(key, length)
  }

  function keep(key: string, length: number): void {
    kept.set(key, length)
    keptBytes += length
  }

  function drop(key: string): void {
    keptBytes -= kept.get(key) ?? 0
    kept.delete(key)
  }

  /** Counts a content; false for one that is counted already. */
  function count(key: string, length: number): boolean {
    if (now() >= freshUntilMs) {
      for (const each of [...kept.keys()]) if (isOver(each)) drop(each)
      freshUntilMs = now() + FRESH_MS
    }
    if (kept.has(key)) return false
    if (keptBytes + length > bytesMax) throw new StoreFullError()
    keep(key, length)
    return true
  }

  async function putContent(key: string, { bytes, type }: PutImage): Promise<void> {
    const isNew = count(key, bytes.length)
    await objects.put(key, { bytes, type: mediaTypeOf(type) }).catch((error: unknown) => {
      if (isNew) drop(key)
      throw error
    })
  }

  async function putLink(key: string, { bytes, type }: PutImage): Promise<string> {
    const [hour = '', name = ''] = key.split('/content-')
    const id = `${randomBytes(ID_BYTES).toString('hex')}-${hour}`
    const link: Link = { name, type, length: bytes.length, expiresAtMs: now() + ttlMs }
    const linkBytes = Buffer.from(JSON.stringify(link))
    await objects.put(linkKey(hour, id), { bytes: linkBytes, type: 'application/json' })
    return id
  }

  return {
    async put(image) {
      measuring ??= measure()
      await measuring.catch((error: unknown) => {
        measuring = null
        throw error
      })
      const key = contentKey(Math.floor(now() / FOLDER_MS), hash('sha256', image.bytes, 'hex'))
      await putContent(key, image)
      return putLink(key, image)
    },
    async find(id) {
      const [, hour] = ID.exec(id) ?? []
      if (hour === undefined) return null
      const link = await readLink(objects, linkKey(hour, id))
      if (link === null || link.expiresAtMs <= now()) return null
      const { name, ...facts } = link
      return { ...facts, open: () => openContent(objects, contentKey(hour, name), link) }
    },
    async sweep() {
      for (let removed = 0; removed < REMOVED_MAX; ) {
        const over = (await objects.list()).filter(isOver)
        // What other processes put into the same folder counts too.
        if (over.length === 0) return measure()
        for (let at = 0; at < over.length; at += REMOVALS_MAX)
          await Promise.all(over.slice(at, at + REMOVALS_MAX).map((key) => objects.remove(key)))
        removed += over.length
      }
    },
  }
}

type PutImage = Parameters<ImageStore['put']>[0]

function contentKey(hour: number | string, name: string): string {
  return `${hour}/content-${name}`
}

function linkKey(hour: string, id: string): string {
  return `${hour}/link-${hash('sha256', id, 'hex')}`
}

/** What a link says of its image: `name` is the content's SHA-256, hex. */
type Link = Omit<KeptImage, 'open'> & { readonly name: string }

/** Null for a link that does not exist, or that no store here wrote. */
async function readLink(objects: ImageObjects, key: string): Promise<Link | null> {
  const found = await objects.get(key)
  if (found === null) return null
  if (!(found.length <= LINK_BYTES_MAX)) {
    giveUp(found.body)
    return null
  }
  const written = await text(found.body).catch((error: unknown) => {
    throw new ImageStoreError('unreachable', ': a link broke off', error)
  })
  return parseLink(written)
}

function parseLink(written: string): Link | null {
  try {
    const { name, type, length, expiresAtMs } = JSON.parse(written)
    const isLink =
      CONTENT_NAME.test(name) &&
      IMAGE_TYPES.includes(type) &&
      Number.isSafeInteger(length) &&
      length > 0 &&
      Number.isFinite(expiresAtMs)
    return isLink ? { name, type, length, expiresAtMs } : null
  } catch {
    return null
  }
}

/**
 * The content, whose last piece is given when the whole has its hash: another one is broken off,
 * and never whole.
 */
async function openContent(
  objects: ImageObjects,
  key: string,
  { name, length }: Link,
): Promise<Readable | null> {
  const found = await objects.get(key)
  if (found === null) return null
  const { body } = found
  if (found.length !== length) {
    giveUp(body)
    throw new ImageStoreError('WrongLength', `: expected ${length} bytes, got ${found.length}`)
  }
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
      else done(new ImageStoreError('WrongContent', ': expected the content of its hash'))
    },
  })
  body.on('error', (error) => check.destroy(error))
  check.on('close', () => body.destroy())
  return body.pipe(check)
}

/** What was still to come is an error of the stream, which is not ours to report. */
function giveUp(body: Readable): void {
  body.on('error', () => undefined).destroy()
}
