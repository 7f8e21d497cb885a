import { type Kysely, sql } from 'kysely'

/**
 * Content of records that is encrypted or erased: where it is then, since when, and why. The new
 * columns of records are null, so that no row is written anew; making the index reads the table.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  // One row for each act, whatever it erased. account_id: whose content, null for everybody's.
  await sql`
    create table erasures (
      id integer generated always as identity primary key,
      requested_by text not null check (requested_by in ('operator', 'account', 'retention')),
      reason text not null,
      account_id uuid,
      created_at bigint not null
    )`.execute(db)
  // Which keys content was encrypted under. retired_at: when none was left under it.
  await sql`
    create table content_keys (
      id text primary key check (id ~ '^[0-9a-f]{16}$'),
      first_used_at bigint not null,
      retired_at bigint
    )`.execute(db)
  // The account's content up to erased_through is erased, whenever it comes to be stored.
  await sql`
    alter table accounts
      add column retention_days integer check (retention_days > 0),
      add column erased_through bigint,
      add column erasure_id integer references erasures (id)`.execute(db)
  await sql`
    alter table records
      add column content bytea,
      add column erased_at bigint,
      add column erasure_id integer`.execute(db)
  // Ciphertext cannot be compressed: trying costs time. Its first bytes can be read alone then.
  await sql`alter table records alter column content set storage external`.execute(db)
  // Not checked of the rows there are, which have none of it.
  await sql`
    alter table records
      add constraint records_content_once check (content is null or request is null) not valid,
      add constraint records_erased check (
        erased_at is null or (erasure_id is not null and content is null and request is null)) not valid`.execute(
    db,
  )
  await sql`
    create index records_content on records (account_id, created_at)
      where request is not null or content is not null`.execute(db)
  await sql`alter table idempotency_keys add column sealed_answer bytea`.execute(db)
}

/** Drops all that `up` made: for tests of the migration only, and with all content in the clear. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`alter table idempotency_keys drop column sealed_answer`.execute(db)
  await sql`drop index records_content`.execute(db)
  await sql`
    alter table records
      drop constraint records_erased, drop constraint records_content_once,
      drop column erasure_id, drop column erased_at, drop column content`.execute(db)
  await sql`
    alter table accounts drop column erasure_id, drop column erased_through, drop column retention_days`.execute(
    db,
  )
  await sql`drop table content_keys`.execute(db)
  await sql`drop table erasures`.execute(db)
}
