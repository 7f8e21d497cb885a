import { type Kysely, sql } from 'kysely'

/**
 * Evidence of attested providers, by digest, with the TLS keys in each evidence. provider_keys_seen
 * has every key that a connection to a provider had. provider_turns has the time at which one of
 * the gateways next collects the evidence of an origin. Times are Unix milliseconds.
 */
export async function up(db: Kysely<unknown>): Promise<void> {
  await sql
    .raw(`
  create table provider_evidence (
    digest bytea primary key check (octet_length(digest) = 32),
    provider text not null,
    origin text not null,
    kind text not null check (kind in ('tinfoil', 'dstack', 'aci', 'nitro')),
    fetched_ms bigint not null,
    ends_ms bigint,
    block text,
    document bytea not null check (octet_length(document) <= 4194304)
  );
  create index provider_evidence_newest on provider_evidence (origin, kind, fetched_ms);
  create table provider_evidence_keys (
    origin text not null,
    spki bytea not null check (octet_length(spki) = 32),
    fetched_ms bigint not null,
    digest bytea not null references provider_evidence (digest),
    primary key (origin, spki, fetched_ms, digest)
  );
  create index provider_evidence_keys_digest on provider_evidence_keys (digest);
  create table provider_keys_seen (
    origin text not null,
    spki bytea not null check (octet_length(spki) = 32),
    first_seen_ms bigint not null,
    last_seen_ms bigint not null,
    primary key (origin, spki)
  );
  create table provider_turns (
    origin text not null,
    kind text not null,
    due_ms bigint not null,
    failures integer not null default 0 check (failures >= 0),
    primary key (origin, kind)
  )`)
    .execute(db)
}
