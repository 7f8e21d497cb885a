import { hash } from 'node:crypto'
import {
  mkdir,
  open as openFile,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { IMAGE_TYPES, type ImageType } from './image-facts.ts'

/** An image that is kept. */
export type KeptImage = {
  readonly type: ImageType
  /** Bytes in it. */
  readonly length: number
  /** Unix milliseconds. */
  readonly expiresAtMs: number
  /**
   * Its bytes, a piece at a time: who reads slowly shall not hold it in memory. Null when it is
   * gone by now. Read it or destroy it.
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
}

/** There is no room for another image. */
export class StoreFullError extends Error {
  override readonly name = 'StoreFullError'

  constructor() {
    super('the image store is full')
  }
}

/** How often links and contents that are over are looked for. */
export const SWEEP_INTERVAL_MS = 60_000

type FileStoreOptions = {
  readonly folder: string
  /** How long a link lasts. */
  readonly ttlMs: number
  /** All contents together. */
  readonly bytesMax: number
  /** Unix milliseconds. */
  readonly now: () => number
  /** So many unpredictable bytes. */
  readonly random: (length: number) => Uint8Array
}

/** A store that has to be swept, now and then. */
export type SweptImageStore = ImageStore & {
  /** Removes what is over. */
  sweep(): Promise<void>
}

/**
 * Store of images in a folder, which is made when it is first needed, for this user alone. Files
 * are written beside their place and moved there, so that a reader always finds a file whole. A
 * content that is put again is kept once.
 */
export function createFileStore(options: FileStoreOptions): SweptImageStore {
  const { folder, ttlMs, bytesMax, now, random } = options
  const contents = join(folder, 'contents')
  const links = join(folder, 'links')
  const drafts = join(folder, 'drafts')
  const newDraft = () => join(drafts, hexOf(random(ID_BYTES)))
  let opening: Promise<void> | null = null
  let bytesKept = 0

  /** Makes the folders, and counts what is in them from before. */
  async function openFolders(): Promise<void> {
    for (const path of [contents, links, drafts])
      await mkdir(path, { recursive: true, mode: 0o700 })
    const sizes = await Promise.all(
      (await readdir(contents)).map((name) => sizeOf(join(contents, name))),
    )
    bytesKept = sizes.reduce((sum, size) => sum + size, 0)
  }

  function open(): Promise<void> {
    opening ??= openFolders().catch((error: unknown) => {
      opening = null
      throw error
    })
    return opening
  }

  /** The time of a content is that of its last link: the sweep goes by it. */
  async function keepContent(name: string, bytes: Uint8Array): Promise<void> {
    const path = join(contents, name)
    if (await touch(path, now())) return
    if (bytesKept + bytes.length > bytesMax) throw new StoreFullError()
    bytesKept += bytes.length
    await place(path, bytes, newDraft())
    await touch(path, now())
  }

  return {
    async put({ bytes, type }) {
      await open()
      const name = hash('sha256', bytes, 'hex')
      await keepContent(name, bytes)
      const id = hexOf(random(ID_BYTES))
      const path = join(links, id)
      const link: Link = { name, type, length: bytes.length, expiresAtMs: now() + ttlMs }
      await place(path, JSON.stringify(link), newDraft())
      await touch(path, now())
      // A sweep may have removed an old content between the two: now that the link stands, it is
      // renewed or made again.
      await keepContent(name, bytes)
      return id
    },
    async find(id) {
      if (!ID.test(id)) return null
      const link = readLink((await readFile(join(links, id), 'utf8').catch(missing)) ?? '')
      if (link === null || link.expiresAtMs <= now()) return null
      const { name, ...facts } = link
      return { ...facts, open: () => openContent(join(contents, name)) }
    },
    async sweep() {
      // A service that makes no images needs no folder.
      if (opening === null && (await stat(folder).catch(missing)) === null) return
      await open()
      await removeOld(links, now() - ttlMs)
      await removeOld(drafts, now() - ttlMs)
      // Later than the links by a sweep: a link that is just being made has renewed its content's
      // time. The bytes are counted again, which mends any earlier mistake.
      bytesKept = await removeOld(contents, now() - ttlMs - SWEEP_INTERVAL_MS)
    },
  }
}

const ID_BYTES = 16
const ID = /^[0-9a-f]{32}$/
/** Form of a SHA-256 in hex. */
const CONTENT_NAME = /^[0-9a-f]{64}$/

/** What a link says of its image: `name` is the content's SHA-256, hex. */
export type Link = Omit<KeptImage, 'open'> & { readonly name: string }

/** What a link's text says; null for a text that no store here wrote. */
export function readLink(text: string): Link | null {
  try {
    const { name, type, length, expiresAtMs } = JSON.parse(text)
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
 * Bytes of a content, from a file that stays open until they are read or given up, though a sweep
 * removes it.
 */
async function openContent(path: string): Promise<Readable | null> {
  const file = await openFile(path).catch(missing)
  return file?.createReadStream() ?? null
}

/** Writes a file beside its place, and moves it there. */
async function place(path: string, bytes: Uint8Array | string, draft: string): Promise<void> {
  try {
    await writeFile(draft, bytes, { mode: 0o600, flag: 'wx' })
    await rename(draft, path)
  } catch (error) {
    await rm(draft, { force: true })
    throw error
  }
}

/** Removes what is in a folder and not younger than `untilMs`. Gives the bytes of what is left. */
async function removeOld(folder: string, untilMs: number): Promise<number> {
  let bytes = 0
  for (const name of await readdir(folder)) {
    const path = join(folder, name)
    const found = await stat(path).catch(missing)
    if (found === null) continue
    if (found.mtimeMs <= untilMs) await rm(path, { force: true })
    else bytes += found.size
  }
  return bytes
}

/** Sets the time of a file. False when it does not exist. */
async function touch(path: string, atMs: number): Promise<boolean> {
  const seconds = atMs / 1000
  return (await utimes(path, seconds, seconds).catch(missing)) !== null
}

async function sizeOf(path: string): Promise<number> {
  return (await stat(path).catch(missing))?.size ?? 0
}

/** For a file that is not there. Every other error is one. */
function missing(error: unknown): null {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
  throw error
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex')
}
