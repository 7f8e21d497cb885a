import { randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rm, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { placeFile } from '../runtime/place-file.ts'
import type { ImageObjects } from './image-store.ts'

/**
 * Keeps objects in a folder that only this user can read. A file is written under another name and
 * then renamed, so that a reader never sees a partial file. An open file stays readable after its
 * removal.
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

/** Folders of an older version, which did not sort images by hour. No address leads to them. */
const OLDER_FOLDERS = ['contents', 'links', 'drafts']

/** Rethrows unless the file is missing. */
function missing(error: unknown): null {
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
  throw error
}
