import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import { LruMap } from '../runtime/lru-map.ts'

const MARK = '/* prepared */'

/**
 * Marks a statement that a Postgres connection parses and plans once, because it runs for every
 * commit or call. Such a statement must meet two conditions. It names its columns one by one: with
 * `*` it fails on connections that are older than a migration. One plan must suit all its
 * parameters.
 */
export const PREPARED = sql.raw(MARK)

/** Maximum number of texts whose names are remembered. Some statements have several forms. */
const NAMES_MAX = 1_000

const names = new LruMap<string, string>(NAMES_MAX)

/**
 * Gives the name of a statement that is to be prepared; each text has a different name. Null for
 * other statements.
 */
export function statementName(text: string): string | null {
  if (!text.trimStart().startsWith(MARK)) return null
  return names.getOrMake(text, () => createHash('sha256').update(text).digest('hex').slice(0, 32))
}
