import { join } from 'node:path'
import { StartFailure } from '../local/supervised-process.ts'
import type { Logger } from '../observability/logger.ts'
import { type Database, openDatabase } from '../storage/database.ts'
import { DataFolderInUse } from '../storage/folder-lock.ts'
import { DatabaseUnfit } from '../storage/postgres.ts'

/** Folder of the embedded database within the data folder. */
export const DATABASE_FOLDER = 'database'

/**
 * Opens the Postgres server at `url`, or without one the embedded database in the data folder, and migrates it. Rejects
 * with StartFailure, whose message never holds the URL.
 */
export async function startDatabase(
  { url, dataFolder }: { readonly url: string | null; readonly dataFolder: string },
  log: Pick<Logger, 'warn'>,
): Promise<Database> {
  const location = url === null ? { dataFolder: join(dataFolder, DATABASE_FOLDER) } : { url }
  try {
    return await openDatabase(location, (error) => log.warn({ err: error }, 'database connection broke'))
  } catch (error) {
    const what = 'url' in location ? 'DATABASE_URL' : `the embedded database in ${location.dataFolder}`
    throw new StartFailure(describe(error, what), { cause: error })
  }
}

function describe(error: unknown, what: string): string {
  if (error instanceof DataFolderInUse || error instanceof DatabaseUnfit) return `database: ${error.message}`
  // Refused connections to several addresses come as one error without a message of its own.
  const first = error instanceof AggregateError ? error.errors[0] : error
  const reason = first instanceof Error ? first.message : 'unknown fault'
  return `database: ${what} cannot be used: ${reason}`
}
