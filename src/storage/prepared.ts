import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import { LruMap } from '../runtime/lru-map.ts'

const MARK = '/* prepared */'

/**
 * Marks a statement that each Postgres connection parses and plans only once, because the statement
 * runs for every commit or call. Such a statement must meet two conditions. First, it must name its
 * columns one by one: with `*` it would fail on connections that are older than a migration.
 * Second, one plan must suit all its parameters.
 */
export const PREPARED = sql.raw(MARK)

/**
 * Maximum number of statement texts whose names are remembered. Some statements have several forms.
 */
const NAMES_MAX = 1_000

const names = new LruMap<string, string>(NAMES_MAX)

/**
 * Returns the name of a marked statement. Each text has a different name. Null for statements that
 * are not marked.
 */
export function statementName(text: string): string | null {
  if (!text.trimStart().startsWith(MARK)) return null
  return names.getOrMake(text, () => createHash('sha256').update(text).digest('hex').slice(0, 32))
}
