import { randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { placeFile } from '../runtime/place-file.ts'
import type { ImageObjects } from './image-store.ts'

/**
 * Objects in a folder, which is made when it is first needed, for this user alone. Files are
 * written beside their place and moved there, so that a reader always finds a file whole. An open
 * file is read to its end, though it is removed meanwhile.
 */
export function openImageFolder(folder: string): ImageObjects {
  return {
    async put(key, { bytes }) {
      const path = join(folder, key)
      await mkdir(dirname(path), { recursive: true, mode: 0o700 })
      await placeFile(path, bytes, { draft: `${path}.${randomUUID()}`, mode: 0o600 })
    },
    async get(key) {
      const file = await open(join(folder, key)).catch(missing)
      return file && { length: (await file.stat()).size, body: file.createReadStream() }
    },
    async list() {
      for (const name of OLDER_FOLDERS)
        await rm(join(folder, name), { recursive: true, force: true })
      return (await readdir(folder).catch(missing)) ?? []
    },
    remove: (key) => rm(join(folder, key), { recursive: true, force: true }),
    async measure() {
      const keys = (await readdir(folder, { recursive: true }).catch(missing)) ?? []
      const sizeOf = async (key: string) => (await stat(join(folder, key)).catch(missing))?.size
      return Promise.all(keys.map(async (key) => [key, (await sizeOf(key)) ?? 0] as const))
    },
    close: async () => undefined,
  }
}

/** What the store had before it kept images by their hour: no link leads there. */
const OLDER_FOLDERS = ['contents', 'links', 'drafts']

/** For a file that is not there. Every other error is one. */
function missing(error: unknown): null {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
  throw error
}
