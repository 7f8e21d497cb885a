import { sql } from 'kysely'
import type { Database } from './database.ts'

/** Gives what asks the database for the least there is, and rejects with the driver's error when it does not answer. */
export function createDatabaseCheck({ queries }: Pick<Database, 'queries'>): () => Promise<void> {
  return async () => {
    await sql`select 1`.execute(queries)
  }
}
