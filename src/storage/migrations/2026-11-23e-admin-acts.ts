import { type Kysely, sql } from 'kysely'

/** What was done by administrators, and accounts that are disabled or deleted. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table accounts
      add column disabled_at bigint,
      add column deleted_at bigint,
      add column former_name text`.execute(db)
  // hash is SHA-256 of the hash of the row before and of entry, which has everything else again.
  await sql`
    create table admin_acts (
      position bigint primary key,
      at bigint not null,
      kind text not null,
      entry text not null,
      hash bytea not null check (octet_length(hash) = 32)
    )`.execute(db)
  await sql`create index admin_acts_kind on admin_acts (kind, position)`.execute(db)
  await sql.raw(REFUSE_CHANGE).execute(db)
  await sql`
    create trigger admin_acts_append_only before update or delete or truncate on admin_acts
      for each statement execute function refuse_change_of_admin_acts()`.execute(db)
  await sql.raw(APPEND_ADMIN_ACT).execute(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`drop function append_admin_act`.execute(db)
  await db.schema.dropTable('admin_acts').execute()
  await sql`drop function refuse_change_of_admin_acts`.execute(db)
  await sql`
    alter table accounts drop column disabled_at, drop column deleted_at, drop column former_name`.execute(
    db,
  )
}

const REFUSE_CHANGE = `
create function refuse_change_of_admin_acts() returns trigger language plpgsql as $$
begin
  raise exception 'admin_acts is append-only';
end $$`

/**
 * Appends an act. The lock is held until the transaction ends, so that the next one sees this one:
 * positions have no gaps, also where transactions are undone. 32 zero bytes are before the first.
 */
const APPEND_ADMIN_ACT = `
create function append_admin_act(at bigint, kind text, entry text) returns bigint language plpgsql as $$
declare
  last admin_acts;
begin
  perform pg_advisory_xact_lock(4711220023);
  select * into last from admin_acts order by position desc limit 1;
  insert into admin_acts values (coalesce(last.position, 0) + 1, at, kind, entry,
    sha256(coalesce(last.hash, decode(repeat('00', 32), 'hex')) || convert_to(entry, 'UTF8')));
  return coalesce(last.position, 0) + 1;
end $$`
