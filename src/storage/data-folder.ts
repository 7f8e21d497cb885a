import { lstat, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { StartFailure, systemCodeOf } from '../runtime/starting.ts'
import { DataFolderInUse } from './errors.ts'
import { type FolderLock, lockFolder } from './folder-lock.ts'

/** Where a gateway that starts parts of its own keeps them. */
export type Home = {
  /** What is kept between starts; locked for this process. */
  readonly dataFolder: string
  /** For sockets; gone with the process. */
  readonly privateFolder: string
  leave(): Promise<void>
}

/**
 * Opens the data folder for this process alone. Rejects with DataFolderInUse, or StartFailure when
 * it cannot be used.
 */
export async function openHome(dataFolder: string): Promise<Home> {
  const lock = await takeFolder(dataFolder)
  try {
    const privateFolder = await makePrivateFolder()
    return {
      dataFolder,
      privateFolder: privateFolder.path,
      leave: async () => {
        await privateFolder.remove()
        await lock.release()
      },
    }
  } catch (error) {
    await lock.release()
    throw error
  }
}

async function takeFolder(folder: string): Promise<FolderLock> {
  try {
    // Others have no business in it: it holds keys and prompts.
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return await lockFolder(folder)
  } catch (error) {
    if (error instanceof DataFolderInUse) throw error
    throw new StartFailure(
      `data folder: DATA_DIR ${folder} cannot be used (${systemCodeOf(error) ?? 'unknown fault'})`,
    )
  }
}

/** A folder that only this user may enter (0700), gone after `remove`. */
export type PrivateFolder = { readonly path: string; remove(): Promise<void> }

const PREFIX = 'affidavit-'

/**
 * Makes a folder for sockets under the system's folder for temporary files: the kernel takes about
 * 100 bytes of a socket's path, and a data folder may be anywhere.
 */
export async function makePrivateFolder(): Promise<PrivateFolder> {
  const path = await mkdtemp(join(tmpdir(), PREFIX))
  return { path, remove: () => rm(path, { recursive: true, force: true }) }
}

/**
 * Removes the private folder that holds `file`, left by a gateway that was killed. Does nothing
 * when it is not a folder that makePrivateFolder makes, of this user: its place comes from a file
 * that another user may have written.
 */
export async function removeStaleFolder(file: string): Promise<void> {
  const folder = dirname(file)
  if (dirname(folder) !== tmpdir() || !folder.startsWith(join(tmpdir(), PREFIX))) return
  const stat = await lstat(folder).catch(() => null)
  if (stat?.isDirectory() !== true || stat.uid !== process.getuid?.()) return
  await rm(folder, { recursive: true, force: true })
}
