import { sql } from 'kysely'
import type { Database } from '#src/storage/database.ts'

/**
 * Every row of every table of a database as text, bytes in hex: everything that a dump contains.
 */
export async function dumpTables({ queries }: Pick<Database, 'queries'>): Promise<string> {
  const { rows } = await sql<{ name: string }>`
    select tablename as name from pg_tables where schemaname = 'public'`.execute(queries)
  const texts: string[] = []
  for (const { name } of rows) {
    const table = await sql<{ row: string }>`
      select t::text as row from ${sql.table(name)} t`.execute(queries)
    texts.push(...table.rows.map(({ row }) => row))
  }
  return texts.join('\n')
}

/** Whether a dump has the text, as it is or in hex. */
export function holdsText(dump: string, text: string): boolean {
  return dump.includes(text) || dump.includes(Buffer.from(text).toString('hex'))
}
