import { type Kysely, sql } from 'kysely'

/**
 * Anchors whose nonce another transaction took, the anchors made in their place, and who follows a
 * relayer.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table anchors
      drop constraint anchors_state_check,
      add constraint anchors_state_check check (state in ('pending', 'mined', 'confirmed', 'reverted', 'taken'))`.execute(
    db,
  )
  // origin_* is the first anchor of the same head, whose hash the head's records carry; null in
  // that one itself. attempt counts from it: 0, 1, 2…
  await sql`
    alter table anchors
      add column origin_relayer text,
      add column origin_nonce bigint,
      add column attempt integer not null default 0,
      add constraint anchors_origin_check check (
        (attempt = 0 and origin_relayer is null and origin_nonce is null)
        or (attempt > 0 and origin_relayer is not null and origin_nonce is not null))`.execute(db)
  // Unique, so that two gateways do not both anchor the same head again.
  await sql`
    create unique index anchors_again on anchors (origin_relayer, origin_nonce, attempt) where attempt > 0`.execute(
    db,
  )
  await sql`create index anchors_taken on anchors (relayer, nonce) where state = 'taken'`.execute(
    db,
  )
  await sql`
    alter table relayers
      add column follower uuid,
      add column followed_until bigint not null default 0`.execute(db)
}

/** Drops all that `up` made: for tests of the migration only, and with no anchor that is taken. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`alter table relayers drop column followed_until, drop column follower`.execute(db)
  for (const index of ['anchors_taken', 'anchors_again']) await db.schema.dropIndex(index).execute()
  await sql`
    alter table anchors
      drop constraint anchors_origin_check,
      drop column attempt, drop column origin_nonce, drop column origin_relayer,
      drop constraint anchors_state_check,
      add constraint anchors_state_check check (state in ('pending', 'mined', 'confirmed', 'reverted'))`.execute(
    db,
  )
}
