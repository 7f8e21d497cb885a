import type { Operator } from '../api/context.ts'
import type { Logger } from '../observability/logger.ts'
import { admitContentKeys } from '../storage/content-keys-store.ts'
import type { Database } from '../storage/database.ts'
import { type AdminLog, createAdminLog } from './admin-log-store.ts'

/** The author of changes to the settings and to the files that the settings name. */
export const CONFIGURATION: Operator = { who: 'operator', accountId: null, from: 'configuration' }

/**
 * Opens the log, and records a new key for stored content in it. Throws StartFailure if content
 * cannot be stored with the configured keys.
 */
export async function openAdminLog(database: Database, log: Logger): Promise<AdminLog> {
  const adminLog = createAdminLog(database)
  const contentKey = await admitContentKeys(database, log)
  if (contentKey !== null)
    await adminLog.append(CONFIGURATION, { kind: 'content.use_key', target: contentKey })
  return adminLog
}
