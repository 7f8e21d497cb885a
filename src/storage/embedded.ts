import { chmod, mkdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { PGliteDialect } from 'kysely'
import { startUpkeep, UPKEEP_LIMITS } from './embedded-upkeep.ts'
import { lockFolder } from './folder-lock.ts'
import { parseInt8 } from './int8.ts'
import type { OpenedDatabase } from './postgres.ts'

const OWNER_ALONE = 0o700
const OTHERS = 0o077

/**
 * Opens the embedded PGlite in a folder of our own, which is made when it is missing and closed to other users. What was committed survives a
 * kill of the process, but not a power cut: PGlite does not wait for the disk. Rejects with DataFolderInUse when
 * another process holds the folder: two would destroy each other's files.
 */
export async function openEmbedded(
  dataFolder: string,
  onError: (error: Error) => void,
  upkeepLimits = UPKEEP_LIMITS,
): Promise<OpenedDatabase> {
  await mkdir(dataFolder, { recursive: true })
  // PGlite lets everybody write its files, whatever the umask: only the folder keeps others out.
  if (((await stat(dataFolder)).mode & OTHERS) !== 0) await chmod(dataFolder, OWNER_ALONE)
  const lock = await lockFolder(dataFolder)
  try {
    // Loaded only here: 20 MB of WebAssembly that a gateway on a real Postgres never needs.
    const { PGlite, types } = await import('@electric-sql/pglite')
    const pglite = await PGlite.create({
      dataDir: path.join(dataFolder, 'pgdata'),
      parsers: { [types.INT8]: parseInt8 },
    })
    const upkeep = startUpkeep(pglite, upkeepLimits, onError)
    const close = async () => {
      await upkeep.stop()
      if (!pglite.closed) await pglite.close()
      await lock.release()
    }
    return { dialect: new PGliteDialect({ pglite }), commitDialect: null, migrationDialect: null, close }
  } catch (error) {
    await lock.release()
    throw error
  }
}
