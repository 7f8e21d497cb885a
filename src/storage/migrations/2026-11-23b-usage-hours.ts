import { type Kysely, sql } from 'kysely'

/**
 * What accounts used, hour by hour. It is counted in the step that settles calls, so a batch whose
 * outcome was unknown, and that is sent again, counts once.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table usage_hours (
      account_id uuid not null,
      hour_at bigint not null,
      operation text not null,
      family text not null,
      requests bigint not null,
      tokens bigint not null,
      primary key (account_id, hour_at, operation, family)
    ) with (fillfactor = 50)`.execute(db)
  await sql`create index usage_hours_age on usage_hours (hour_at)`.execute(db)
  await sql.raw(USAGE_STEP).execute(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`drop function usage_step`.execute(db)
  await db.schema.dropTable('usage_hours').execute()
}

/**
 * rate_limit_step, and usage. The process's row is locked first: of a batch that is sent twice at
 * once, the second sees that it was counted. Rows of usage are locked after all windows, in the
 * order of their keys, so that two gateways never wait for each other.
 */
const USAGE_STEP = `
create function usage_step(process uuid, lease_seconds bigint, batch bigint, buckets json, usages json, clock bigint)
returns json language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  counted_batch bigint;
  result json;
begin
  if batch is not null then
    insert into gateway_processes as known values (process, at_seconds + lease_seconds, 0)
      on conflict (id) do update set expires_at = known.expires_at
      returning settled_batch into counted_batch;
  end if;
  result := rate_limit_step(process, lease_seconds, batch, buckets, clock);
  if counted_batch < batch then
    insert into usage_hours as known
      select account, at_seconds - at_seconds % 3600, operation, family, sum(requests), sum(tokens)
      from json_to_recordset(usages) as given(
        account uuid, operation text, family text, requests bigint, tokens bigint)
      group by account, operation, family order by account, operation collate "C", family collate "C"
      on conflict (account_id, hour_at, operation, family) do update set
        requests = known.requests + excluded.requests, tokens = known.tokens + excluded.tokens;
  end if;
  return result;
end $$`
