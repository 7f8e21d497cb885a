import { type Kysely, sql } from 'kysely'

/**
 * Heads that are committed and wait for the anchor of their interval. The anchor of a record is the
 * first of its log that is over its leaf, so records need not name it.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  // first_index leaves are anchored, and have anchored_root. log_id is null in a commit that lost
  // its race: the key undoes it (src/verified/commits/commits-store.ts).
  await sql`
    create table unanchored_heads (
      log_id integer primary key,
      first_index bigint not null,
      anchored_root bytea not null check (octet_length(anchored_root) = 32),
      size bigint not null check (size > first_index),
      root bytea not null check (octet_length(root) = 32),
      signature bytea not null check (octet_length(signature) = 65),
      since bigint not null
    )`.execute(db)
  await sql`
    alter table records alter column relayer drop not null, alter column nonce drop not null`.execute(
    db,
  )
}

/** Drops all that `up` made: for tests of the migration only, and with every record anchored. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`
    update records r set (relayer, nonce) = (
      select a.relayer, a.nonce from anchors a
      where a.log_id = r.log_id and a.size > r.index and a.attempt = 0 order by a.size limit 1)
    where r.relayer is null`.execute(db)
  await sql`
    alter table records alter column relayer set not null, alter column nonce set not null`.execute(
    db,
  )
  await db.schema.dropTable('unanchored_heads').execute()
}
