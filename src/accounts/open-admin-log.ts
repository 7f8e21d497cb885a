import type { Operator } from '../api/context.ts'
import type { Logger } from '../observability/logger.ts'
import { admitContentKeys } from '../storage/content-keys-store.ts'
import type { Database } from '../storage/database.ts'
import { type AdminLog, createAdminLog } from './admin-log-store.ts'

/** The operator, as the author of changes to the settings and to the files named there. */
export const CONFIGURATION: Operator = { who: 'operator', accountId: null, from: 'configuration' }

/**
 * Opens the administrative log. If the key for stored content is new, records that. Rejects with
 * StartFailure when content cannot be stored with the configured keys.
 */
export async function openAdminLog(database: Database, log: Logger): Promise<AdminLog> {
  const adminLog = createAdminLog(database)
  const contentKey = await admitContentKeys(database, log)
  if (contentKey !== null)
    await adminLog.append(CONFIGURATION, { kind: 'content.use_key', target: contentKey })
  return adminLog
}
