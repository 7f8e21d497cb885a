import { lstat, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

/** A folder that only this user may enter (0700), gone after `remove`. */
export type PrivateFolder = { readonly path: string; remove(): Promise<void> }

const PREFIX = 'affidavit-'

/**
 * Makes a folder for sockets under the system's folder for temporary files: the kernel takes about 100 bytes of a
 * socket's path, and a data folder may be anywhere.
 */
export async function makePrivateFolder(): Promise<PrivateFolder> {
  const path = await mkdtemp(join(tmpdir(), PREFIX))
  return { path, remove: () => rm(path, { recursive: true, force: true }) }
}

/**
 * Removes the private folder that holds `file`, left by a gateway that was killed. Does nothing when it is not one that
 * makePrivateFolder makes, of this user: where it is comes from a file that somebody may have written.
 */
export async function removeStaleFolder(file: string): Promise<void> {
  const folder = dirname(file)
  if (dirname(folder) !== tmpdir() || !folder.startsWith(join(tmpdir(), PREFIX))) return
  const stat = await lstat(folder).catch(() => null)
  if (stat?.isDirectory() !== true || stat.uid !== process.getuid?.()) return
  await rm(folder, { recursive: true, force: true })
}
