import { lstat, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { DataFolderInUse, type FolderLock, lockFolder } from '../runtime/folder-lock.ts'
import { StartFailure, systemCodeOf } from '../runtime/starting.ts'

/** The folders of a gateway that starts its parts itself. */
export type Home = {
  /** This folder remains after the process ends. It is locked for this process. */
  readonly dataFolder: string
  /** Folder for sockets. It is removed when the process ends. */
  readonly privateFolder: string
  leave(): Promise<void>
}

/** Throws DataFolderInUse, or StartFailure when the folder cannot be used. */
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
    // The folder contains keys and prompts, so other users must not read it.
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return await lockFolder(folder)
  } catch (error) {
    if (error instanceof DataFolderInUse) throw error
    throw new StartFailure(
      `data folder: DATA_DIR ${folder} cannot be used (${systemCodeOf(error) ?? 'unknown fault'})`,
    )
  }
}

/** Only this user can enter the folder (0700). */
export type PrivateFolder = { readonly path: string; remove(): Promise<void> }

const PREFIX = 'affidavit-'

/**
 * Makes a folder in the system's temporary folder, because a socket's path has at most about 100
 * bytes, and a data folder's path can be too long.
 */
export async function makePrivateFolder(): Promise<PrivateFolder> {
  const path = await mkdtemp(join(tmpdir(), PREFIX))
  return { path, remove: () => rm(path, { recursive: true, force: true }) }
}

/**
 * Removes the private folder of a killed gateway. The folder contains `file`. Another user may have
 * chosen this path, so nothing is removed unless the folder has the form of makePrivateFolder and
 * belongs to this user.
 */
export async function removeStaleFolder(file: string): Promise<void> {
  const folder = dirname(file)
  if (dirname(folder) !== tmpdir() || !folder.startsWith(join(tmpdir(), PREFIX))) return
  const stat = await lstat(folder).catch(() => null)
  if (stat?.isDirectory() !== true || stat.uid !== process.getuid?.()) return
  await rm(folder, { recursive: true, force: true })
}
