import { type Kysely, sql } from 'kysely'

/** Sums of a node's hours have tokens too, for the hours that they are kept now. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table node_hours
      add column prompt_tokens bigint not null default 0,
      add column completion_tokens bigint not null default 0`.execute(db)
}

/** Drops the columns: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`alter table node_hours drop column completion_tokens, drop column prompt_tokens`.execute(
    db,
  )
}
