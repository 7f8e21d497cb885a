/**
 * Checks and counts a batch of calls, and settles earlier calls, in one step. Each window's row is
 * locked before it is read. The caller sorts `buckets`, and rows are locked in this order, so that
 * two gateways never block each other. A row never returns to an earlier window. With `clock` null,
 * the time is the server's, which all gateways share.
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
 * Releases the reservations of dead processes, and returns how many of these ended since the last
 * call. A dead process keeps its row for 600 s, because it may live and send a counted batch again.
 * Until its next renewal it may also reserve again, so each call releases its reservations. Locks
 * windows in the order of rate_limit_step.
 */
const EXPIRE_GATEWAY_PROCESSES = `
create function expire_gateway_processes(clock bigint) returns bigint language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  dead uuid[];
  ended bigint;
  reservation rate_limit_reservations;
begin
  select array_agg(id), count(*) filter (where ended_at is null) into dead, ended from (
    select id, ended_at from gateway_processes where expires_at <= at_seconds order by id for update skip locked) as expired;
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
  update gateway_processes set ended_at = at_seconds where id = any (dead) and ended_at is null;
  delete from gateway_processes where id = any (dead) and ended_at < at_seconds - 600;
  return ended;
end $$`

/**
 * Calls rate_limit_step, and counts usage by key and model. The process's row is locked first: if a
 * batch is sent twice at the same time, the second sees that the batch was counted. Rows of usage
 * are locked after all windows, in the order of their keys, so that two gateways never block each
 * other. Callers choose the names of models, so beyond 1,000 rows of an account in an hour, other
 * models count together as `*`. A sum of money stays at most the largest exact JSON number, because
 * a larger sum would make all later steps fail.
 */
const USAGE_STEP = `
create function usage_step(
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

/**
 * Returns the start, in UTC, of the window that is `later` windows after the window that contains
 * `at`.
 */
const BUDGET_WINDOW = `
create function budget_window(per text, at bigint, later integer) returns bigint language sql immutable as $$
  select case per
    when 'day' then at - at % 86400 + later * 86400
    when 'month' then extract(epoch from
      (date_trunc('month', to_timestamp(at) at time zone 'UTC') + make_interval(months => later)) at time zone 'UTC')::bigint
    else 0 end
$$`

/**
 * Reserves a call's use in all budgets that apply to the call. If a budget has too little left,
 * reserves nothing and returns the first such budget. Rows are locked in the order of their keys
 * before they are read. With `money` null, the call's price is not known.
 */
const BUDGET_RESERVE = `
create function budget_reserve(
  process uuid, call uuid, account uuid, key text, tokens bigint, money bigint, clock bigint)
returns json language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  held budgets;
  amount bigint;
begin
  perform 1 from budgets where account_id = account and key_id in ('', key)
    order by key_id collate "C", what collate "C", per collate "C" for update;
  for held in select * from budgets where account_id = account and key_id in ('', key)
    order by key_id collate "C", what collate "C", per collate "C"
  loop
    amount := case held.what when 'requests' then 1 when 'tokens' then tokens else money end;
    if budget_window(held.per, at_seconds, 0) > held.window_at then held.used := 0; end if;
    if amount is null or held.used + amount > held.bound then
      return json_build_object('what', held.what, 'per', held.per, 'is_of_key', held.key_id <> '',
        'bound', held.bound, 'used', held.used, 'amount', amount,
        'renews_at', case when held.per = 'total' then null else budget_window(held.per, at_seconds, 1) end);
    end if;
  end loop;
  update budgets set
    used = case when budget_window(per, at_seconds, 0) > window_at then 0 else used end
      + case what when 'requests' then 1 when 'tokens' then tokens else money end,
    window_at = greatest(window_at, budget_window(per, at_seconds, 0))
    where account_id = account and key_id in ('', key);
  insert into budget_calls values (call, process, account, key, at_seconds, tokens, coalesce(money, 0), null);
  return null;
end $$`

/**
 * Changes the used amounts by the difference between the actual use and the reservation that was
 * made at `at`. If the reservation's window is over, only the use beyond the reservation counts, in
 * the current window.
 */
const BUDGET_ADJUST = `
create function budget_adjust(account uuid, key text, at bigint, requests bigint, tokens bigint, money bigint)
returns void language plpgsql as $$
begin
  perform 1 from budgets where account_id = account and key_id in ('', key)
    order by key_id collate "C", what collate "C", per collate "C" for update;
  update budgets set used = greatest(0, least(used::numeric + case
      when budget_window(per, at, 0) = window_at then change.by else greatest(0, change.by) end, 9007199254740991))::bigint
    from (values ('requests', requests), ('tokens', tokens), ('money', money)) as change (what, by)
    where account_id = account and key_id in ('', key) and budgets.what = change.what;
end $$`

/**
 * Settles each call only once, even if the call is sent several times. The caller must sort the
 * calls by account and key.
 */
const BUDGET_SETTLE = `
create function budget_settle(process uuid, calls json, clock bigint) returns void language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  given record;
  held budget_calls;
begin
  for given in select * from json_to_recordset(calls) as given(
    call uuid, account uuid, key text, requests bigint, tokens bigint, money bigint)
  loop
    select * into held from budget_calls where call_id = given.call for update;
    if not found then
      -- Given back already, because the process was taken for dead.
      insert into budget_calls values (given.call, process, given.account, given.key, at_seconds, 0, 0, at_seconds);
      perform budget_adjust(given.account, given.key, at_seconds, 0, given.tokens, given.money);
    elsif held.settled_at is null then
      update budget_calls set settled_at = at_seconds where call_id = given.call;
      perform budget_adjust(given.account, given.key, held.at,
        given.requests - 1, given.tokens - held.tokens, given.money - held.money);
    end if;
  end loop;
end $$`

/**
 * Releases the reservations for calls of dead processes, and deletes calls that were settled long
 * ago.
 */
const EXPIRE_BUDGET_CALLS = `
create function expire_budget_calls(clock bigint) returns bigint language plpgsql as $$
declare
  at_seconds bigint := coalesce(clock, floor(extract(epoch from clock_timestamp()))::bigint);
  dead budget_calls;
  count bigint := 0;
begin
  delete from budget_calls where settled_at < at_seconds - 600;
  for dead in select * from budget_calls c where settled_at is null and not exists (
      select from gateway_processes p where p.id = c.process_id and p.expires_at > at_seconds)
    order by account_id, key_id collate "C", call_id for update skip locked
  loop
    perform budget_adjust(dead.account_id, dead.key_id, dead.at, 0, -dead.tokens, -dead.money);
    delete from budget_calls where call_id = dead.call_id;
    count := count + 1;
  end loop;
  return count;
end $$`

const REFUSE_CHANGE = `
create function refuse_change_of_admin_acts() returns trigger language plpgsql as $$
begin
  raise exception 'admin_acts is append-only';
end $$;
create trigger admin_acts_append_only before update or delete or truncate on admin_acts
  for each statement execute function refuse_change_of_admin_acts()`

/**
 * Appends an act. The lock lasts until the transaction ends, so that the next append sees this act,
 * and positions have no gaps. The first act's previous hash is 32 zero bytes.
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

/** SQL functions that stores call instead of several statements. */
export const STEPS = [
  RATE_LIMIT_STEP,
  EXPIRE_GATEWAY_PROCESSES,
  USAGE_STEP,
  BUDGET_WINDOW,
  BUDGET_RESERVE,
  BUDGET_ADJUST,
  BUDGET_SETTLE,
  EXPIRE_BUDGET_CALLS,
  REFUSE_CHANGE,
  APPEND_ADMIN_ACT,
].join(';')
