import { type Kysely, sql } from 'kysely'

/**
 * What enclaves stated, before the first leaf of their logs, of the logs that there were: one of
 * each, ever.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table boot_statements (
      notary text primary key,
      heads text not null,
      document bytea not null,
      created_at bigint not null
    )`.execute(db)
}

/** Drops the statements: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await db.schema.dropTable('boot_statements').execute()
}
