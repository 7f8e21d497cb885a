import { createHash, hash, randomBytes } from 'node:crypto'
import { type Readable, Transform } from 'node:stream'
import { text } from 'node:stream/consumers'
import { IMAGE_TYPES, type ImageType, mediaTypeOf } from './image-facts.ts'

export type KeptImage = {
  readonly type: ImageType
  readonly length: number
  /** Unix milliseconds. */
  readonly expiresAtMs: number
  /**
   * Returns a stream, so that a slow reader does not hold the whole image in memory. The caller
   * must read or destroy the stream. Null if the image was removed.
   */
  open(): Promise<Readable | null>
}

/** Keeps images for a limited time. */
export type ImageStore = {
  /** Returns the id of a new link to the image. Throws StoreFullError. */
  put(image: { readonly bytes: Uint8Array; readonly type: ImageType }): Promise<string>
  /**
   * Null when the link does not exist or has expired. `id` comes from the caller and may have any
   * form.
   */
  find(id: string): Promise<KeptImage | null>
  /** Removes expired images. */
  sweep(): Promise<void>
}

/** The objects of an image store, in a folder (image-folder.ts) or a bucket (bucket.ts). */
export type ImageObjects = {
  /** Writes a whole object in one step, and replaces an object with the same key. */
  put(key: string, object: { readonly bytes: Uint8Array; readonly type: string }): Promise<void>
  /** Null when the object does not exist. The caller must read or destroy the stream. */
  get(key: string): Promise<{ readonly length: number; readonly body: Readable } | null>
  /** Returns keys, or folders of keys, in order. A long list may end early. */
  list(): Promise<readonly string[]>
  /** Removes an object, or a folder. Does nothing when it does not exist. */
  remove(key: string): Promise<void>
  /**
   * Objects that were stored before this process started. Empty when several gateways share the
   * store.
   */
  measure(): Promise<readonly (readonly [key: string, length: number])[]>
  close(): Promise<void>
}

export class StoreFullError extends Error {
  override readonly name = 'StoreFullError'

  constructor() {
    super('the image store is full')
  }
}

/**
 * The store cannot write or read objects, or an object's content has changed. The message is for
 * the operator: it names the bucket's host and the store's error code.
 */
export class ImageStoreError extends Error {
  override readonly name = 'ImageStoreError'
  /**
   * The store's own code, such as `AccessDenied`, or a code that this gateway chose for the fault.
   */
  readonly code: string

  constructor(code: string, message: string, cause?: unknown) {
    super(`image store${message} (${code})`, { cause })
    this.code = code
  }
}

export const SWEEP_INTERVAL_MS = 600_000

/** Each folder has the objects of one hour. */
const FOLDER_MS = 3_600_000
/** A folder stays this long after its images expire, because the clocks of gateways may differ. */
const CLOCKS_MS = 900_000

/** Minimum time between two searches for expired images in the total size. */
const FRESH_MS = 60_000

/** Maximum number of removals per sweep. The next sweep continues. */
const REMOVED_MAX = 10_000
/** Maximum number of simultaneous removals. */
const REMOVALS_MAX = 16

const LINK_BYTES_MAX = 1024
const ID_BYTES = 16
const ID = /^[0-9a-f]{32}-(\d{6})$/
const HOUR = /^(\d{6})(?=\/|$)/
const CONTENT_KEY = /^\d{6}\/content-[0-9a-f]{64}$/
/** SHA-256 in hex. */
const CONTENT_NAME = /^[0-9a-f]{64}$/

type StoreOptions = {
  readonly objects: ImageObjects
  /** How long a link lasts. */
  readonly ttlMs: number
  /** Limit of all stored images that this process knows. */
  readonly bytesMax: number
  /** Unix milliseconds. */
  readonly now: () => number
}

/**
 * A store of images, for any number of gateways. `HOUR/content-SHA256` contains an image.
 * `HOUR/link-SHA256` contains a link to an image. HOUR is the hour of storing, and is part of the
 * link's id. A link's key has only the hash of its id, so keys reveal no address. No gateway adds
 * objects to a past hour, so any gateway can remove the whole hour. The store must contain images
 * only: a sweep may remove other objects, and other objects may hide expired images.
 */
export function createImageStore({ objects, ttlMs, bytesMax, now }: StoreOptions): ImageStore {
  /** Bytes of each known content, by key. `keptBytes` is their sum. */
  const kept = new Map<string, number>()
  let keptBytes = 0
  /** Unix milliseconds. Before this time, expired content is not searched for again. */
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

  /** False when the bytes were counted already. */
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
        // `measure` also counts objects that other processes wrote into the same folder.
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

/** `name` is the SHA-256 of the image's content, hex. */
type Link = Omit<KeptImage, 'open'> & { readonly name: string }

/** Null when the link does not exist, or when another program wrote it. */
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

/** If the content's hash is wrong, the stream ends with an error before the last piece. */
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

/** Closes the stream, and ignores all its errors from now on. */
function giveUp(body: Readable): void {
  body.on('error', () => undefined).destroy()
}
