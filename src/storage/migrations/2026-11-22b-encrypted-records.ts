import { type Kysely, sql } from 'kysely'

/**
 * Records of encrypted calls: without request and response, which only their callers have, and with
 * what was used, which is in no text that is stored.
 */
export async function up(database: Kysely<unknown>): Promise<void> {
  await sql`
    alter table records
      alter column request drop not null,
      alter column response drop not null,
      add column usage text,
      add constraint records_whole_or_encrypted check ((request is null) = (response is null))
  `.execute(database)
}

/** Undoes it: for tests of the migration only, and with no record of an encrypted call. */
export async function down(database: Kysely<unknown>): Promise<void> {
  await sql`
    alter table records
      drop constraint records_whole_or_encrypted,
      drop column usage,
      alter column response set not null,
      alter column request set not null
  `.execute(database)
}
