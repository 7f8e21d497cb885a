import { type Kysely, sql } from 'kysely'

/** The search finds anchors by their block: its number, or its hash. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const column of ['block_number', 'block_hash'])
    await sql`
      create index ${sql.id(`anchors_${column}`)} on anchors (${sql.id(column)})
      where ${sql.id(column)} is not null`.execute(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  for (const column of ['block_number', 'block_hash'])
    await db.schema.dropIndex(`anchors_${column}`).execute()
}
