import { sql } from 'kysely'
import type { Logger } from '../observability/logger.ts'
import { StartFailure } from '../runtime/starting.ts'
import { clockSeconds } from './clock.ts'
import type { Database } from './database.ts'

/**
 * Records the key that encrypts content from now on. Returns its id if the key was not in use
 * before, else null. Throws StartFailure when the database has encrypted content and no key is
 * configured: an operator who forgot the setting must not store new content unencrypted. If only
 * some keys are missing, logs a warning: content under these keys cannot be read.
 */
export async function admitContentKeys(
  { queries, content }: Pick<Database, 'queries' | 'content'>,
  log: Pick<Logger, 'warn'>,
): Promise<string | null> {
  const newest = content?.keyIds.at(-1) ?? null
  const isNew = newest !== null && (await recordKey({ queries }, newest))
  const known = new Set(content?.keyIds)
  const used = await queries
    .selectFrom('content_keys')
    .select('id')
    .where('retired_at', 'is', null)
    .orderBy('first_used_at')
    .execute()
  const missing = used.flatMap(({ id }) => (known.has(id) ? [] : [id]))
  if (missing.length === 0) return isNew ? newest : null
  if (content === null)
    throw new StartFailure(
      `content: the database holds content that is encrypted under ${missing.join(', ')}, and there is no key: ` +
        'set CONTENT_KEY_FILE or CONTENT_KEY_COMMAND (when those keys are lost, to a new one)',
    )
  log.warn({ keys: missing }, 'keys of stored content are missing: it cannot be read')
  return isNew ? newest : null
}

/**
 * True if the key was not in use. If two gateways record it at the same time, only one gets true.
 */
async function recordKey({ queries }: Pick<Database, 'queries'>, id: string): Promise<boolean> {
  const { numAffectedRows } = await sql`
    insert into content_keys (id, first_used_at) values (${id}, ${clockSeconds(null)})
    on conflict (id) do update set retired_at = null
      where content_keys.retired_at is not null`.execute(queries)
  return (numAffectedRows ?? 0n) > 0n
}
