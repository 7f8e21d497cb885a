import { type Kysely, sql } from 'kysely'

/**
 * What accounts used by key and model, its tokens by prompt and answer, and what it cost. Of rows
 * from before, key and model are unknown (a key is never empty), no token is told apart, and no
 * request has a price. A gateway from before sends usages without them, which are kept like those.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table usage_hours
      add column key_id text not null default '',
      add column model text not null default '',
      add column prompt_tokens bigint not null default 0,
      add column completion_tokens bigint not null default 0,
      add column money bigint not null default 0,
      add column unpriced_requests bigint not null default 0`.execute(db)
  await sql`update usage_hours set unpriced_requests = requests`.execute(db)
  await sql`
    alter table usage_hours drop constraint usage_hours_pkey,
      add primary key (account_id, hour_at, operation, family, key_id, model)`.execute(db)
  await sql.raw(SPEND_STEP).execute(db)
}

/** Undoes what `up` did, but for usage_step: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`
    alter table usage_hours drop column key_id cascade, drop column model cascade,
      drop column prompt_tokens, drop column completion_tokens, drop column money,
      drop column unpriced_requests`.execute(db)
  await sql`
    alter table usage_hours add primary key (account_id, hour_at, operation, family)`.execute(db)
}

/**
 * usage_step of 2026-11-23b-usage-hours.ts, which also counts keys, models and money. Callers name
 * models: beyond 1,000 rows of an account in an hour, those that are not there yet are counted
 * together as `*`. Money stops at what a JSON number holds, so that no sum of claims makes a step
 * fail for good.
 */
const SPEND_STEP = `
create or replace function usage_step(
  process uuid, lease_seconds bigint, batch bigint, buckets json, usages json, clock bigint)
returns json language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  this_hour bigint := at_seconds - at_seconds % 3600;
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
    with given as (
      select account, operation, family, coalesce(key, '') as own_key, coalesce(model, '') as named,
        requests, tokens, coalesce(prompt, 0) as prompt, coalesce(completion, 0) as completion,
        coalesce(money, 0) as money, coalesce(unpriced, requests) as unpriced
      from json_to_recordset(usages) as one(
        account uuid, operation text, family text, key text, model text, requests bigint, tokens bigint,
        prompt bigint, completion bigint, money bigint, unpriced bigint)
    ), crowded as (
      select account_id from usage_hours
      where hour_at = this_hour and account_id in (select account from given)
      group by account_id having count(*) >= 1000
    ), kept as (
      select given.*, case when account in (select account_id from crowded) and not exists (
          select from usage_hours u where u.account_id = given.account and u.hour_at = this_hour
            and u.operation = given.operation and u.family = given.family
            and u.key_id = given.own_key and u.model = given.named)
        then '*' else named end as kept_model
      from given
    )
    insert into usage_hours as known (account_id, hour_at, operation, family, key_id, model,
        requests, tokens, prompt_tokens, completion_tokens, money, unpriced_requests)
      select account, this_hour, operation, family, own_key, kept_model, sum(requests), sum(tokens),
        sum(prompt), sum(completion), least(sum(money), 9007199254740991), sum(unpriced)
      from kept group by account, operation, family, own_key, kept_model
      order by account, operation collate "C", family collate "C", own_key collate "C", kept_model collate "C"
      on conflict (account_id, hour_at, operation, family, key_id, model) do update set
        requests = known.requests + excluded.requests, tokens = known.tokens + excluded.tokens,
        prompt_tokens = known.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = known.completion_tokens + excluded.completion_tokens,
        money = least(known.money::numeric + excluded.money, 9007199254740991)::bigint,
        unpriced_requests = known.unpriced_requests + excluded.unpriced_requests;
  end if;
  return result;
end $$`
