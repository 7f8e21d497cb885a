import { type Kysely, sql } from 'kysely'

/** Contributed nodes, their benchmarks, and what they served. */
export async function up(db: Kysely<unknown>): Promise<void> {
  await createNodes(db)
  await createInferences(db)
}

/** Drops all that `up` made: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  for (const table of ['network_minutes', 'node_hours', 'inferences', 'node_benchmarks', 'nodes'])
    await db.schema.dropTable(table).execute()
}

/**
 * hardware_at is null until the node's agent has reported its hardware; then operating_system,
 * cpu_model and ram are there.
 */
async function createNodes(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table nodes (
      node_id text primary key,
      account_id uuid not null,
      name text not null,
      created_at bigint not null,
      is_archived boolean not null default false,
      state text check (state in ('RUNNING', 'RUNNING_BENCHMARKING', 'RUNNING_DEGRADED', 'RUNNING_DISABLED',
        'STOPPED', 'STOPPED_BENCHMARK_FAILED', 'STOPPED_DEGRADED', 'STOPPED_DISABLED')),
      hardware_at bigint,
      operating_system text,
      cpu_model text,
      cpu_count bigint check (cpu_count >= 0),
      ram bigint check (ram >= 0),
      gpu_model text,
      gpu_count bigint check (gpu_count >= 0),
      vram bigint check (vram >= 0),
      power_limit bigint check (power_limit >= 0),
      network_download_speed double precision check (network_download_speed >= 0),
      network_upload_speed double precision check (network_upload_speed >= 0),
      version text,
      connected_since bigint,
      last_seen_at bigint,
      models text[] not null default '{}',
      total_uptime_seconds bigint not null default 0 check (total_uptime_seconds >= 0),
      requests_served bigint not null default 0 check (requests_served >= 0),
      check (hardware_at is null or (operating_system is not null and cpu_model is not null and ram is not null))
    )`.execute(db)
  await sql`create index nodes_account on nodes (account_id, created_at, node_id)`.execute(db)
  await sql`create index nodes_connected on nodes (node_id) where connected_since is not null`.execute(
    db,
  )
  await sql`
    create table node_benchmarks (
      node_id text not null references nodes (node_id),
      model text not null,
      tokens_per_second double precision not null check (tokens_per_second >= 0),
      created_at bigint not null,
      primary key (node_id, model)
    )`.execute(db)
}

/**
 * node_hours and network_minutes are sums over inferences, written in the statement that adds
 * those: a day's figures are read from a few sums, however many inferences it had. The id makes
 * adding the same batch twice harmless. Nothing here refers to nodes or accounts: what was served
 * is noted, whatever became of them.
 */
async function createInferences(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table inferences (
      id uuid primary key,
      position bigint generated always as identity,
      node_id text not null,
      account_id uuid,
      model text not null,
      prompt_tokens bigint not null,
      completion_tokens bigint not null,
      total_tokens bigint not null,
      time_to_first_token_ms double precision,
      created_at bigint not null
    )`.execute(db)
  await sql`
    create index inferences_node on inferences (node_id, created_at desc, position desc)`.execute(
    db,
  )
  await sql`
    create table node_hours (
      node_id text not null,
      hour_at bigint not null,
      requests bigint not null,
      first_tokens bigint not null,
      first_token_ms double precision not null,
      primary key (node_id, hour_at)
    )`.execute(db)
  await sql`
    create table network_minutes (
      minute_at bigint primary key,
      requests bigint not null
    )`.execute(db)
}
