import { type Kysely, sql } from 'kysely'

/** Keys that the gateways of one service share, each made once. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table service_keys (
      name text primary key,
      key bytea not null check (octet_length(key) = 32)
    )`.execute(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await db.schema.dropTable('service_keys').execute()
}
