import { createHash } from 'node:crypto'
import { sql } from 'kysely'
import { LruMap } from '../runtime/lru-map.ts'

const MARK = '/* prepared */'

/**
 * Begins a statement that a Postgres connection parses and plans once, because it is run for every
 * commit or call. Two things are asked of such a statement: its columns are named one by one, since
 * one with `*` fails on connections that are older than a migration; and one plan is right for all
 * its parameters.
 */
export const PREPARED = sql.raw(MARK)

/** Texts whose names are remembered: some statements have several forms. */
const NAMES_MAX = 1_000

const names = new LruMap<string, string>(NAMES_MAX)

/** The name of a statement that is to be prepared, which no other text has; null of any other. */
export function statementName(text: string): string | null {
  if (!text.trimStart().startsWith(MARK)) return null
  return names.getOrMake(text, () => createHash('sha256').update(text).digest('hex').slice(0, 32))
}
