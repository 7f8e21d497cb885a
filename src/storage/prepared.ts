import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import { LruMap } from '../runtime/lru-map.ts'

const MARK = '/* prepared */'

/**
 * Marks a statement that runs for every commit or call, so that each Postgres connection plans it
 * only once. The statement must name its columns, because `*` would fail on connections that are
 * older than a migration. One plan must suit all values of its parameters.
 */
export const PREPARED = sql.raw(MARK)

/** Maximum number of statements whose names are in memory. */
const NAMES_MAX = 1_000

const names = new LruMap<string, string>(NAMES_MAX)

/** Returns a different name for each text. Null for an unmarked statement. */
export function statementName(text: string): string | null {
  if (!text.trimStart().startsWith(MARK)) return null
  return names.getOrMake(text, () => createHash('sha256').update(text).digest('hex').slice(0, 32))
}
