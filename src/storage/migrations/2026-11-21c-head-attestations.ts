import { type Kysely, sql } from 'kysely'

/**
 * States of logs that their enclaves attested: of each size the first and the newest, which the
 * primary key bounds.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table head_attestations (
      log_id integer not null,
      size bigint not null check (size >= 0),
      is_first boolean not null,
      root bytea not null check (octet_length(root) = 32),
      block_number bigint not null check (block_number >= 0),
      block_hash bytea not null check (octet_length(block_hash) = 32),
      document bytea not null,
      created_at bigint not null,
      primary key (log_id, size, is_first)
    )`.execute(db)
}

/** Drops the attestations: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await db.schema.dropTable('head_attestations').execute()
}
