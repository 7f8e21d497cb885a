import { type Kysely, sql } from 'kysely'

/**
 * Scopes and lives of keys, tiers of accounts, what limits count, and what calls with an
 * Idempotency-Key became.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await extendKeys(db)
  await createProcesses(db)
  await createRateLimits(db)
  await sql.raw(RATE_LIMIT_STEP).execute(db)
  await sql.raw(EXPIRE_GATEWAY_PROCESSES).execute(db)
  await createIdempotency(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`alter table records drop column call_id`.execute(db)
  await sql`drop function expire_gateway_processes, rate_limit_step`.execute(db)
  for (const table of [
    'idempotency_keys',
    'rate_limit_reservations',
    'rate_limit_windows',
    'gateway_processes',
  ])
    await db.schema.dropTable(table).execute()
  await sql`alter table api_keys drop column scopes, drop column expires_at, drop column last_used_at`.execute(
    db,
  )
  await sql`alter table accounts drop column tier`.execute(db)
}

/**
 * Keys made before keep what they could do: completions and their history, and what belongs to
 * nodes.
 */
async function extendKeys(db: Kysely<unknown>): Promise<void> {
  await sql`alter table accounts add column tier text`.execute(db)
  await sql`
    alter table api_keys
      add column scopes text[] not null default '{inference,nodes}'
        check (scopes <@ array['inference', 'nodes', 'history:all', 'admin']),
      add column expires_at bigint,
      add column last_used_at bigint`.execute(db)
}

/**
 * One row per running gateway, renewed every few seconds: what belongs to a row that is past its
 * time belonged to a process that is dead. settled_batch is the last batch of settlements that was
 * counted, so that one is never counted twice.
 */
async function createProcesses(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table gateway_processes (
      id uuid primary key,
      expires_at bigint not null,
      settled_batch bigint not null default 0
    )`.execute(db)
}

/**
 * minute and day are numbers of windows: Unix seconds by 60 and by 86400. The free half of each
 * page is for new versions of its rows, which then need no new index entries and no vacuum.
 */
async function createRateLimits(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table rate_limit_windows (
      account_id uuid not null,
      group_name text not null,
      minute bigint not null,
      minute_requests bigint not null,
      minute_tokens bigint not null,
      day bigint not null,
      day_requests bigint not null,
      day_tokens bigint not null,
      primary key (account_id, group_name)
    ) with (fillfactor = 50)`.execute(db)
  await sql`
    create table rate_limit_reservations (
      process_id uuid not null,
      account_id uuid not null,
      group_name text not null,
      minute bigint not null,
      minute_tokens bigint not null,
      day bigint not null,
      day_tokens bigint not null,
      primary key (process_id, account_id, group_name)
    ) with (fillfactor = 50)`.execute(db)
}

/**
 * A call of one account under a key of its own. call_id travels with a verified call through the
 * enclave and comes back in its record, which is the answer; other answers are kept in `answer`.
 */
async function createIdempotency(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table idempotency_keys (
      account_id uuid not null,
      key text not null,
      call_id uuid not null,
      request_hash bytea not null check (octet_length(request_hash) = 32),
      process_id uuid not null,
      notary text,
      answer text,
      abandoned_at bigint,
      created_at bigint not null,
      expires_at bigint not null,
      primary key (account_id, key)
    )`.execute(db)
  await sql`create index idempotency_keys_expiry on idempotency_keys (expires_at)`.execute(db)
  await sql`alter table records add column call_id uuid`.execute(db)
  await sql`create index records_call on records (call_id) where call_id is not null`.execute(db)
}

/**
 * Checks and counts a batch of calls, and settles earlier ones, in one step: each window's row is
 * locked before it is read. Rows are locked in the order that `buckets` has, which the caller
 * sorts, so that two gateways never wait for each other. A window only moves forward. With `clock`
 * null the time is the server's, one for all gateways.
 */
const RATE_LIMIT_STEP = `
create function rate_limit_step(process uuid, lease_seconds bigint, batch bigint, buckets json, clock bigint)
returns json language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  bucket record;
  settlement record;
  held rate_limit_windows;
  estimate bigint;
  reserved bigint;
  is_new_batch boolean := false;
  is_admitted boolean;
  outcomes json[] := '{}';
begin
  -- A crash of the server may forget the last moments of counting; waiting for its disk would double what a call waits.
  perform set_config('synchronous_commit', 'off', true);
  if batch is not null then
    insert into gateway_processes values (process, at_seconds + lease_seconds, batch)
      on conflict (id) do update set settled_batch = excluded.settled_batch
      where gateway_processes.settled_batch < excluded.settled_batch;
    is_new_batch := found;
  end if;
  for bucket in select * from json_to_recordset(buckets) as given(
    account uuid, name text, minute_requests bigint, minute_tokens bigint, day_requests bigint, day_tokens bigint,
    estimates bigint[], settlements json)
  loop
    select * into held from rate_limit_windows
      where account_id = bucket.account and group_name = bucket.name for update;
    if not found then
      insert into rate_limit_windows values (bucket.account, bucket.name, 0, 0, 0, 0, 0, 0) on conflict do nothing;
      select * into held from rate_limit_windows
        where account_id = bucket.account and group_name = bucket.name for update;
    end if;
    if at_seconds / 60 > held.minute then
      held.minute := at_seconds / 60;
      held.minute_requests := 0;
      held.minute_tokens := 0;
    end if;
    if at_seconds / 86400 > held.day then
      held.day := at_seconds / 86400;
      held.day_requests := 0;
      held.day_tokens := 0;
    end if;
    if is_new_batch then
      for settlement in select * from json_to_recordset(bucket.settlements) as given(
        process uuid, minute bigint, day bigint, reserved bigint, used bigint, excess bigint)
      loop
        if settlement.reserved > 0 then
          update rate_limit_reservations set
            minute_tokens = minute_tokens - case when minute = settlement.minute then settlement.reserved else 0 end,
            day_tokens = day_tokens - case when day = settlement.day then settlement.reserved else 0 end
            where process_id = settlement.process and account_id = bucket.account and group_name = bucket.name;
          if not found then
            -- Given back already, because the process was taken for dead.
            settlement.excess := settlement.used;
            settlement.reserved := 0;
          end if;
        end if;
        held.minute_tokens := held.minute_tokens + case when held.minute = settlement.minute
          then settlement.used - settlement.reserved else settlement.excess end;
        held.day_tokens := held.day_tokens + case when held.day = settlement.day
          then settlement.used - settlement.reserved else settlement.excess end;
      end loop;
    end if;
    reserved := 0;
    foreach estimate in array bucket.estimates loop
      is_admitted := held.minute_requests < coalesce(bucket.minute_requests, held.minute_requests + 1)
        and held.day_requests < coalesce(bucket.day_requests, held.day_requests + 1)
        and (bucket.minute_tokens is null or held.minute_tokens + estimate <= bucket.minute_tokens)
        and (bucket.day_tokens is null or held.day_tokens + estimate <= bucket.day_tokens);
      if is_admitted then
        held.minute_requests := held.minute_requests + 1;
        held.day_requests := held.day_requests + 1;
        held.minute_tokens := held.minute_tokens + estimate;
        held.day_tokens := held.day_tokens + estimate;
        reserved := reserved + estimate;
      end if;
      outcomes := outcomes || json_build_array(is_admitted, held.minute, held.minute_requests, held.minute_tokens,
        held.day, held.day_requests, held.day_tokens);
    end loop;
    update rate_limit_windows set
      minute = held.minute, minute_requests = held.minute_requests, minute_tokens = held.minute_tokens,
      day = held.day, day_requests = held.day_requests, day_tokens = held.day_tokens
      where account_id = bucket.account and group_name = bucket.name;
    if reserved > 0 then
      insert into rate_limit_reservations as known values
        (process, bucket.account, bucket.name, held.minute, reserved, held.day, reserved)
        on conflict (process_id, account_id, group_name) do update set
          minute = excluded.minute,
          minute_tokens = excluded.minute_tokens
            + case when known.minute = excluded.minute then known.minute_tokens else 0 end,
          day = excluded.day,
          day_tokens = excluded.day_tokens + case when known.day = excluded.day then known.day_tokens else 0 end;
    end if;
  end loop;
  return json_build_object('at', at_seconds, 'outcomes', array_to_json(outcomes));
end $$`

/**
 * Gives back what dead processes had reserved, and forgets them. Locks windows in the order that
 * rate_limit_step does.
 */
const EXPIRE_GATEWAY_PROCESSES = `
create function expire_gateway_processes(clock bigint) returns bigint language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  dead uuid[];
  reservation rate_limit_reservations;
begin
  select array_agg(id) into dead from (
    select id from gateway_processes where expires_at <= at_seconds order by id for update skip locked) as expired;
  if dead is null then return 0; end if;
  for reservation in
    select * from rate_limit_reservations where process_id = any (dead)
      order by account_id, group_name collate "C", process_id
  loop
    perform from rate_limit_windows
      where account_id = reservation.account_id and group_name = reservation.group_name for update;
    delete from rate_limit_reservations
      where process_id = reservation.process_id and account_id = reservation.account_id
        and group_name = reservation.group_name
      returning * into reservation;
    update rate_limit_windows set
      minute_tokens = minute_tokens - case when minute = reservation.minute then reservation.minute_tokens else 0 end,
      day_tokens = day_tokens - case when day = reservation.day then reservation.day_tokens else 0 end
      where account_id = reservation.account_id and group_name = reservation.group_name;
  end loop;
  delete from gateway_processes where id = any (dead);
  return array_length(dead, 1);
end $$`
