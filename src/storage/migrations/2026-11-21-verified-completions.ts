import { type Kysely, sql } from 'kysely'

/**
 * Accounts and their keys, logs and their nodes, records, attestation documents, anchors and their
 * relayers.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await createAccounts(db)
  await createLogs(db)
  await createAnchors(db)
  await createRecords(db)
}

/** Drops every table of `up`, and all evidence with them: for tests of the migration only. */
export async function down(db: Kysely<unknown>): Promise<void> {
  const tables = [
    'records',
    'attestation_documents',
    'anchors',
    'relayers',
    'log_nodes',
    'logs',
    'api_keys',
  ]
  for (const table of [...tables, 'accounts']) await db.schema.dropTable(table).execute()
}

async function createAccounts(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table accounts (
      id uuid primary key,
      name text not null unique,
      created_at bigint not null
    )`.execute(db)
  await sql`
    create table api_keys (
      id text primary key,
      account_id uuid not null references accounts (id),
      secret_hash bytea not null check (octet_length(secret_hash) = 32),
      name text not null,
      created_at bigint not null,
      revoked_at bigint
    )`.execute(db)
  await sql`create index api_keys_account on api_keys (account_id)`.execute(db)
}

async function createLogs(db: Kysely<unknown>): Promise<void> {
  await sql`
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
    )`.execute(db)
  await sql`
    create table log_nodes (
      log_id integer not null,
      level integer not null,
      index bigint not null,
      hash bytea not null,
      primary key (log_id, level, index)
    )`.execute(db)
}

async function createAnchors(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table relayers (
      address text primary key check (address ~ '^0x[0-9a-f]{40}$'),
      next_nonce bigint not null check (next_nonce >= 0)
    )`.execute(db)
  // relayer and log_id are null in a commit that lost its race: their NOT NULL is what undoes it
  // (src/verified/commits/commits-store.ts).
  await sql`
    create table anchors (
      relayer text not null,
      nonce bigint not null,
      tx_hash bytea not null unique check (octet_length(tx_hash) = 32),
      raw bytea not null,
      log_id integer not null,
      size bigint not null,
      root bytea not null check (octet_length(root) = 32),
      signature bytea not null check (octet_length(signature) = 65),
      state text not null check (state in ('pending', 'mined', 'confirmed', 'reverted')),
      block_number bigint,
      block_hash bytea,
      gas_used bigint,
      created_at bigint not null,
      primary key (relayer, nonce)
    )`.execute(db)
  await sql`
    create index anchors_unsettled on anchors (relayer, nonce) where state in ('pending', 'mined')`.execute(
    db,
  )
}

/**
 * Texts are kept as text: jsonb alters numbers and refuses U+0000, and the hash is over these very
 * bytes. account_id has no foreign key: a record whose account is unknown here (a restored
 * database) must not stop the log.
 */
async function createRecords(db: Kysely<unknown>): Promise<void> {
  await sql`
    create table attestation_documents (
      digest bytea primary key check (octet_length(digest) = 32),
      document bytea not null,
      first_seen_at bigint not null
    )`.execute(db)
  await sql`
    create table records (
      position bigint generated always as identity primary key,
      id uuid not null unique,
      log_id integer not null,
      index bigint not null,
      account_id uuid,
      request_id text,
      hash bytea not null check (octet_length(hash) = 32),
      request text not null,
      response text not null,
      receipt text not null,
      signature bytea not null check (octet_length(signature) = 65),
      document_digest bytea not null,
      relayer text not null,
      nonce bigint not null,
      outcome text not null,
      created_at bigint not null,
      unique (log_id, index)
    )`.execute(db)
  await sql`create index records_hash on records (hash, position)`.execute(db)
  await sql`create index records_account on records (account_id, position)`.execute(db)
}
