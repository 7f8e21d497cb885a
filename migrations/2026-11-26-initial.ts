import { type Kysely, sql } from 'kysely'
import { STEPS } from './initial/steps.ts'

/** The schema of the first release. `src/storage/tables.ts` describes the columns. */
export async function up(db: Kysely<unknown>): Promise<void> {
  for (const statements of [ACCOUNTS, LOGS, ANCHORS, RECORDS, NODES, LIMITS, ADMIN_ACTS, STEPS])
    await sql.raw(statements).execute(db)
}

/**
 * created_by has no foreign key, because a key that created other keys is never deleted.
 * erased_through: content of completions that finished up to this time is erased, even if it is
 * stored later. Each row in erasures is one erasure, of any number of records.
 */
const ACCOUNTS = `
  create table erasures (
    id integer generated always as identity primary key,
    requested_by text not null check (requested_by in ('operator', 'account', 'retention')),
    reason text not null,
    account_id uuid,
    created_at bigint not null
  );
  create table accounts (
    id uuid primary key,
    name text not null unique,
    created_at bigint not null,
    tier text,
    position bigint generated always as identity,
    retention_days integer check (retention_days > 0),
    erased_through bigint,
    erasure_id integer references erasures (id),
    disabled_at bigint,
    deleted_at bigint,
    former_name text
  );
  create table api_keys (
    id text primary key,
    account_id uuid not null references accounts (id),
    secret_hash bytea not null check (octet_length(secret_hash) = 32),
    name text not null,
    created_at bigint not null,
    revoked_at bigint,
    scopes text[] not null default '{inference,nodes}'
      check (scopes <@ array['inference', 'nodes', 'history:all', 'keys', 'admin']),
    expires_at bigint,
    last_used_at bigint,
    position bigint generated always as identity,
    created_by text
  );
  create index api_keys_account on api_keys (account_id);
  create index api_keys_created_by on api_keys (created_by) where created_by is not null;
  create table content_keys (
    id text primary key check (id ~ '^[0-9a-f]{16}$'),
    first_used_at bigint not null,
    retired_at bigint
  );
  create table service_keys (
    name text primary key,
    key bytea not null check (octet_length(key) = 32)
  )`

/**
 * head_attestations keeps the first and the newest attestation of each size. boot_statements keeps
 * one statement per enclave.
 */
const LOGS = `
  create table logs (
    id integer generated always as identity primary key,
    notary text not null unique check (notary ~ '^0x[0-9a-f]{40}$'),
    public_key bytea not null check (octet_length(public_key) = 65),
    size bigint not null check (size >= 0),
    root bytea not null check (octet_length(root) = 32),
    chain_id bigint not null,
    contract text not null check (contract ~ '^0x[0-9a-f]{40}$'),
    boot_configuration text not null,
    created_at bigint not null
  );
  create table log_nodes (
    log_id integer not null,
    level integer not null,
    index bigint not null,
    hash bytea not null,
    primary key (log_id, level, index)
  );
  create table head_attestations (
    log_id integer not null,
    size bigint not null check (size >= 0),
    is_first boolean not null,
    root bytea not null check (octet_length(root) = 32),
    block_number bigint not null check (block_number >= 0),
    block_hash bytea not null check (octet_length(block_hash) = 32),
    document bytea not null,
    created_at bigint not null,
    primary key (log_id, size, is_first)
  );
  create table boot_statements (
    notary text primary key,
    heads text not null,
    document bytea not null,
    created_at bigint not null
  )`

/**
 * A commit that lost a race writes null as relayer and log_id. NOT NULL in anchors and the primary
 * key of unanchored_heads then make the commit fail (src/verified/commits/commits-store.ts).
 * anchors_again is unique, so that only one of two gateways anchors a head again. The partial index
 * over proven_block_hash contains exactly the anchors that wait for their proofs. A row in
 * anchor_blocks counts only while its block_hash equals the anchor's: a reorganisation changes only
 * the row in anchors. In unanchored_heads, the first first_index leaves are anchored, and
 * anchored_root is the root over these leaves.
 */
const ANCHORS = `
  create table relayers (
    address text primary key check (address ~ '^0x[0-9a-f]{40}$'),
    next_nonce bigint not null check (next_nonce >= 0),
    follower uuid,
    followed_until bigint not null default 0
  );
  create table anchors (
    relayer text not null,
    nonce bigint not null,
    tx_hash bytea not null unique check (octet_length(tx_hash) = 32),
    raw bytea not null,
    log_id integer not null,
    size bigint not null,
    root bytea not null check (octet_length(root) = 32),
    signature bytea not null check (octet_length(signature) = 65),
    state text not null check (state in ('pending', 'mined', 'confirmed', 'reverted', 'taken')),
    block_number bigint,
    block_hash bytea,
    gas_used bigint,
    created_at bigint not null,
    proven_block_hash bytea,
    origin_relayer text,
    origin_nonce bigint,
    attempt integer not null default 0,
    primary key (relayer, nonce),
    constraint anchors_origin_check check (
      (attempt = 0 and origin_relayer is null and origin_nonce is null)
      or (attempt > 0 and origin_relayer is not null and origin_nonce is not null))
  );
  create index anchors_unsettled on anchors (relayer, nonce) where state in ('pending', 'mined');
  create index anchors_taken on anchors (relayer, nonce) where state = 'taken';
  create index anchors_heads on anchors (log_id, size);
  create index anchors_mined_heads on anchors (log_id, size) where state in ('mined', 'confirmed');
  create index anchors_unproven on anchors (block_number, block_hash)
    where state = 'confirmed' and proven_block_hash is distinct from block_hash;
  create unique index anchors_again on anchors (origin_relayer, origin_nonce, attempt) where attempt > 0;
  create index anchors_block_number on anchors (block_number) where block_number is not null;
  create index anchors_block_hash on anchors (block_hash) where block_hash is not null;
  create table anchor_blocks (
    relayer text not null,
    nonce bigint not null,
    block_hash bytea not null check (octet_length(block_hash) = 32),
    number bigint not null,
    header bytea not null,
    transaction_index integer not null check (transaction_index >= 0),
    transaction_proof bytea not null,
    receipt_proof bytea not null,
    primary key (relayer, nonce)
  );
  create table unanchored_heads (
    log_id integer primary key,
    first_index bigint not null,
    anchored_root bytea not null check (octet_length(anchored_root) = 32),
    size bigint not null check (size > first_index),
    root bytea not null check (octet_length(root) = 32),
    signature bytea not null check (octet_length(signature) = 65),
    since bigint not null
  )`

/**
 * Requests and responses are stored as text: the hash covers the exact bytes, and jsonb changes
 * numbers and refuses U+0000. account_id has no foreign key, because a record with an unknown
 * account (in a restored database) must not stop the log. Ciphertext cannot be compressed. With
 * external storage, Postgres does not try to compress it, and can read only its first bytes.
 */
const RECORDS = `
  create table attestation_documents (
    digest bytea primary key check (octet_length(digest) = 32),
    document bytea not null,
    first_seen_at bigint not null
  );
  create table records (
    position bigint generated always as identity primary key,
    id uuid not null unique,
    log_id integer not null,
    index bigint not null,
    account_id uuid,
    request_id text,
    hash bytea not null check (octet_length(hash) = 32),
    request text,
    response text,
    receipt text not null,
    signature bytea not null check (octet_length(signature) = 65),
    document_digest bytea not null,
    relayer text,
    nonce bigint,
    outcome text not null,
    created_at bigint not null,
    call_id uuid,
    usage text,
    content bytea,
    erased_at bigint,
    erasure_id integer,
    unique (log_id, index),
    constraint records_whole_or_encrypted check ((request is null) = (response is null)),
    constraint records_content_once check (content is null or request is null),
    constraint records_erased check (
      erased_at is null or (erasure_id is not null and content is null and request is null))
  );
  alter table records alter column content set storage external;
  create index records_hash on records (hash, position);
  create index records_account on records (account_id, position);
  create index records_call on records (call_id) where call_id is not null;
  create index records_content on records (account_id, created_at)
    where request is not null or content is not null`

/**
 * hardware_at is null until the node's agent reports its hardware. After that, operating_system,
 * cpu_model and ram are not null. node_hours and network_minutes are sums over inferences, so that
 * a day's figures need only a few sums. The statement that adds inferences updates the sums. Each
 * inference has an id, so a batch that is added twice counts once. Inferences have no foreign key
 * to nodes and accounts, so they stay when a node or account is removed.
 */
const NODES = `
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
    position bigint generated always as identity,
    process_id uuid,
    connection_id uuid,
    check (hardware_at is null or (operating_system is not null and cpu_model is not null and ram is not null))
  );
  create index nodes_account on nodes (account_id, created_at, position);
  create index nodes_connected on nodes (node_id) where connected_since is not null;
  create table node_benchmarks (
    node_id text not null references nodes (node_id),
    model text not null,
    tokens_per_second double precision not null check (tokens_per_second >= 0),
    created_at bigint not null,
    position bigint generated always as identity,
    primary key (node_id, model)
  );
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
  );
  create index inferences_node on inferences (node_id, created_at desc, position desc);
  create table node_hours (
    node_id text not null,
    hour_at bigint not null,
    requests bigint not null,
    first_tokens bigint not null,
    first_token_ms double precision not null,
    prompt_tokens bigint not null default 0,
    completion_tokens bigint not null default 0,
    primary key (node_id, hour_at)
  );
  create table network_minutes (
    minute_at bigint primary key,
    requests bigint not null
  )`

/**
 * Each running gateway has one row in gateway_processes, and renews it every few seconds. When the
 * row has expired, the process is dead. settled_batch is the last settlement batch that was
 * counted, so that each batch counts once. A dead process' row is kept for some time after ended_at
 * for the same reason. minute and day are numbers of windows: Unix seconds
 * divided by 60 and by 86400. Half of each page stays free for new versions of its rows, which then
 * need no new index entries and no vacuum. A verified call with an Idempotency-Key takes its
 * call_id through the enclave into the call's record. This record is the answer. Answers of other
 * calls are stored in `answer`. A settled row in budget_calls is kept for some time, so that its
 * call is settled only once.
 */
const LIMITS = `
  create table gateway_processes (
    id uuid primary key,
    expires_at bigint not null,
    settled_batch bigint not null default 0,
    ended_at bigint
  );
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
  ) with (fillfactor = 50);
  create table rate_limit_reservations (
    process_id uuid not null,
    account_id uuid not null,
    group_name text not null,
    minute bigint not null,
    minute_tokens bigint not null,
    day bigint not null,
    day_tokens bigint not null,
    primary key (process_id, account_id, group_name)
  ) with (fillfactor = 50);
  create table usage_hours (
    account_id uuid not null,
    hour_at bigint not null,
    operation text not null,
    family text not null,
    requests bigint not null,
    tokens bigint not null,
    key_id text not null default '',
    model text not null default '',
    prompt_tokens bigint not null default 0,
    completion_tokens bigint not null default 0,
    money bigint not null default 0,
    unpriced_requests bigint not null default 0,
    primary key (account_id, hour_at, operation, family, key_id, model)
  ) with (fillfactor = 50);
  create index usage_hours_age on usage_hours (hour_at);
  create table budgets (
    account_id uuid not null,
    key_id text not null,
    what text not null check (what in ('requests', 'tokens', 'money')),
    per text not null check (per in ('day', 'month', 'total')),
    bound bigint not null check (bound >= 0),
    used bigint not null default 0,
    window_at bigint not null default 0,
    primary key (account_id, key_id, what, per)
  ) with (fillfactor = 50);
  create table budget_calls (
    call_id uuid primary key,
    process_id uuid not null,
    account_id uuid not null,
    key_id text not null,
    at bigint not null,
    tokens bigint not null,
    money bigint not null,
    settled_at bigint
  ) with (fillfactor = 50);
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
    sealed_answer bytea,
    primary key (account_id, key)
  );
  create index idempotency_keys_expiry on idempotency_keys (expires_at)`

/**
 * hash is the SHA-256 of the previous row's hash followed by this row's entry. The entry repeats
 * all other columns.
 */
const ADMIN_ACTS = `
  create table admin_acts (
    position bigint primary key,
    at bigint not null,
    kind text not null,
    entry text not null,
    hash bytea not null check (octet_length(hash) = 32)
  );
  create index admin_acts_kind on admin_acts (kind, position)`
