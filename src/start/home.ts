import { mkdir } from 'node:fs/promises'
import { StartFailure } from '../local/supervised-process.ts'
import { DataFolderInUse, type FolderLock, lockFolder } from '../storage/folder-lock.ts'
import { makePrivateFolder } from './private-folder.ts'

/** Where a gateway that starts parts of its own keeps them. */
export type Home = {
  /** What is kept between starts; locked for this process. */
  readonly dataFolder: string
  /** For sockets; gone with the process. */
  readonly privateFolder: string
  leave(): Promise<void>
}

/** Opens the data folder for this process alone. Rejects with DataFolderInUse, or StartFailure when it cannot be used. */
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
    const code = error instanceof Error && 'code' in error ? error.code : 'unknown fault'
    throw new StartFailure(`data folder: DATA_DIR ${folder} cannot be used (${code})`)
  }
}
