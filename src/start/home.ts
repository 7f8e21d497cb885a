import { mkdir } from 'node:fs/promises'
import { lockFolder } from '../stores/folder-lock.ts'
import { makePrivateFolder } from './private-folder.ts'

/** Where a gateway that starts parts of its own keeps them. */
export type Home = {
  /** What is kept between starts; locked for this process. */
  readonly dataFolder: string
  /** For sockets; gone with the process. */
  readonly privateFolder: string
  leave(): Promise<void>
}

/** Opens the data folder for this process alone, readable by its user alone. Rejects with DataFolderInUse. */
export async function openHome(dataFolder: string): Promise<Home> {
  await mkdir(dataFolder, { recursive: true, mode: 0o700 })
  const lock = await lockFolder(dataFolder)
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
