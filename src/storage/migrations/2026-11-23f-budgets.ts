import { type Kysely, sql } from 'kysely'

/** What accounts and keys may use in a day, a month or at all, and calls that reserved of it. */
export async function up(db: Kysely<unknown>): Promise<void> {
  // key_id is empty for all of the account. Money is in billionths. window_at begins the window
  // that `used` is of.
  await sql`
    create table budgets (
      account_id uuid not null,
      key_id text not null,
      what text not null check (what in ('requests', 'tokens', 'money')),
      per text not null check (per in ('day', 'month', 'total')),
      bound bigint not null check (bound >= 0),
      used bigint not null default 0,
      window_at bigint not null default 0,
      primary key (account_id, key_id, what, per)
    ) with (fillfactor = 50)`.execute(db)
  // A call that is settled stays for a while, so that it is settled once.
  await sql`
    create table budget_calls (
      call_id uuid primary key,
      process_id uuid not null,
      account_id uuid not null,
      key_id text not null,
      at bigint not null,
      tokens bigint not null,
      money bigint not null,
      settled_at bigint
    ) with (fillfactor = 50)`.execute(db)
  await sql.raw(BUDGET_WINDOW).execute(db)
  await sql.raw(BUDGET_RESERVE).execute(db)
  await sql.raw(BUDGET_ADJUST).execute(db)
  await sql.raw(BUDGET_SETTLE).execute(db)
  await sql.raw(EXPIRE_BUDGET_CALLS).execute(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  await sql`
    drop function expire_budget_calls, budget_settle, budget_adjust, budget_reserve, budget_window`.execute(
    db,
  )
  for (const table of ['budget_calls', 'budgets']) await db.schema.dropTable(table).execute()
}

/** When the window begins, or with `later` the next one, that a time is in. UTC. */
const BUDGET_WINDOW = `
create function budget_window(per text, at bigint, later integer) returns bigint language sql immutable as $$
  select case per
    when 'day' then at - at % 86400 + later * 86400
    when 'month' then extract(epoch from
      (date_trunc('month', to_timestamp(at) at time zone 'UTC') + make_interval(months => later)) at time zone 'UTC')::bigint
    else 0 end
$$`

/**
 * Reserves for one call in all budgets that it falls under, or in none: then it gives the first
 * that has too little. Rows are locked in the order of their keys, before they are read. `money`
 * null: what the call costs is not known.
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
 * Changes what is used by the difference to what was reserved at a time. Of a window that is over,
 * what was used beyond the reservation counts in the one that is open.
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

/** Settles calls, each once, however often it is sent. The caller sorts them by account and key. */
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

/** Gives back what calls of dead processes reserved, and forgets what was settled long ago. */
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
