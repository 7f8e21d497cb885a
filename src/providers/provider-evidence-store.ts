import { sql } from 'kysely'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import type { NonceBlock, ProviderKind } from '#attestation/providers/evidence/evidence-document.ts'
import type { Database } from '../storage/database.ts'
import type { Queries, Tables } from '../storage/tables.ts'

/** Evidence without its document. Times are Unix milliseconds, digests and keys hex. */
export type StoredEvidence = {
  readonly digest: string
  readonly fetchedAtMs: number
  /** Null: no part of the evidence expires. */
  readonly endsAtMs: number | null
  readonly block: NonceBlock | null
  /** SHA-256 of the SubjectPublicKeyInfo of each TLS key that the evidence states. */
  readonly keys: readonly string[]
}

/** A TLS key that connections to an origin had. */
type SeenKey = {
  readonly spkiSha256: string
  readonly firstSeenMs: number
  readonly lastSeenMs: number
}

/** A provider whose evidence is collected. */
export type EvidenceSubject = { readonly origin: string; readonly kind: ProviderKind }

type CollectedEvidence = StoredEvidence &
  EvidenceSubject & { readonly provider: string; readonly document: Uint8Array }

/** Every method throws the driver's error. */
export type ProviderEvidenceStore = {
  /** A document that is stored already is not stored again. */
  save(evidence: CollectedEvidence): Promise<void>
  /** By digest, hex. */
  read(digest: string): Promise<Uint8Array | null>
  /**
   * A document from the future was fetched by a gateway with a fast clock, and clients refuse it.
   * It is returned only if there is no other document.
   */
  findNewest(subject: EvidenceSubject): Promise<StoredEvidence | null>
  /**
   * Returns the newest document of the origin that states the key (hex) and was fetched by `atMs`.
   * Prefers documents that expire at `atMs` or later. When collateral is missing, the expiry is not
   * known.
   */
  findFor(receipt: {
    readonly origin: string
    readonly spkiSha256: string
    readonly atMs: number
  }): Promise<Uint8Array | null>
  /** True if the key is new, but not the first key of the origin. */
  recordKey(seen: {
    readonly origin: string
    readonly spkiSha256: string
    readonly atMs: number
  }): Promise<boolean>
  /**
   * True if no document of the origin states the key, and a pause was over when the key was last
   * seen. The pause begins with the newest document, and is as long as from the key's first sight
   * to that document, but within the limits.
   */
  isEvidenceDue(key: {
    readonly origin: string
    readonly spkiSha256: string
    readonly pauseMinMs: number
    readonly pauseMaxMs: number
  }): Promise<boolean>
  /** The most recently seen key comes first. */
  listKeys(origin: string): Promise<readonly SeenKey[]>
}

/** The database's clock, which all gateways share. */
export const NOW_MS = sql<number>`floor(extract(epoch from clock_timestamp()) * 1000)::bigint`

/** A document with a later time is from the future. Clients accept 5 minutes, too. */
const LATEST_MS = sql<number>`(${NOW_MS} + 300000)`

export function createProviderEvidenceStore({
  queries,
}: Pick<Database, 'queries'>): ProviderEvidenceStore {
  return {
    save: (evidence) => queries.transaction().execute((to) => insertEvidence(to, evidence)),
    async read(digest) {
      const row = await queries
        .selectFrom('provider_evidence')
        .select('document')
        .where('digest', '=', decodeHex(digest))
        .executeTakeFirst()
      return row?.document ?? null
    },
    async findNewest({ origin, kind }) {
      const newest = queries
        .selectFrom('provider_evidence')
        .select(['digest', 'fetched_ms', 'ends_ms', 'block'])
        .where('origin', '=', origin)
        .where('kind', '=', kind)
        .orderBy('fetched_ms', 'desc')
        .limit(1)
      const timely = await newest.where('fetched_ms', '<=', LATEST_MS).executeTakeFirst()
      const row = timely ?? (await newest.executeTakeFirst())
      if (row === undefined) return null
      const keys = await queries
        .selectFrom('provider_evidence_keys')
        .select('spki')
        .where('digest', '=', row.digest)
        .orderBy('spki')
        .execute()
      return evidenceOf(
        row,
        keys.map(({ spki }) => encodeHex(spki)),
      )
    },
    async findFor({ origin, spkiSha256, atMs }) {
      const newest = queries
        .selectFrom('provider_evidence_keys as k')
        .innerJoin('provider_evidence as e', 'e.digest', 'k.digest')
        .select('e.document')
        .where('k.origin', '=', origin)
        .where('k.spki', '=', decodeHex(spkiSha256))
        .where('k.fetched_ms', '<=', atMs)
        .orderBy('k.fetched_ms', 'desc')
        .limit(1)
      const lasting = await newest.where('e.ends_ms', '>=', atMs).executeTakeFirst()
      return (lasting ?? (await newest.executeTakeFirst()))?.document ?? null
    },
    async recordKey({ origin, spkiSha256, atMs }) {
      const seenMs = sql`least(${atMs}::bigint, ${NOW_MS})`
      // The statement reads the keys as they were before its insert.
      const { rows } = await sql<{ is_new: boolean }>`
        with seen as (
          insert into provider_keys_seen (origin, spki, first_seen_ms, last_seen_ms)
          values (${origin}, ${decodeHex(spkiSha256)}, ${seenMs}, ${seenMs})
          on conflict (origin, spki) do update set last_seen_ms = greatest(provider_keys_seen.last_seen_ms, excluded.last_seen_ms))
        select coalesce(bool_and(spki <> ${decodeHex(spkiSha256)}), false) as is_new
        from provider_keys_seen where origin = ${origin}`.execute(queries)
      return rows[0]?.is_new ?? false
    },
    async isEvidenceDue({ origin, spkiSha256, pauseMinMs, pauseMaxMs }) {
      const spki = decodeHex(spkiSha256)
      const { rows } = await sql`
        select 1 from (
          select first_seen_ms, last_seen_ms, greatest(first_seen_ms, (
            select max(fetched_ms) from provider_evidence where origin = ${origin} and fetched_ms <= ${LATEST_MS})) as tried_ms
          from provider_keys_seen where origin = ${origin} and spki = ${spki}) as seen
        where last_seen_ms - tried_ms >= least(greatest(tried_ms - first_seen_ms, ${pauseMinMs}::bigint), ${pauseMaxMs}::bigint)
          and not exists (select 1 from provider_evidence_keys where origin = ${origin} and spki = ${spki})`.execute(
        queries,
      )
      return rows.length > 0
    },
    async listKeys(origin) {
      const rows = await queries
        .selectFrom('provider_keys_seen')
        .selectAll()
        .where('origin', '=', origin)
        .orderBy('last_seen_ms', 'desc')
        .orderBy('spki')
        .limit(KEYS_LISTED_MAX)
        .execute()
      return rows.map((row) => ({
        spkiSha256: encodeHex(row.spki),
        firstSeenMs: row.first_seen_ms,
        lastSeenMs: row.last_seen_ms,
      }))
    },
  }
}

async function insertEvidence(
  transaction: Queries,
  { digest, fetchedAtMs, endsAtMs, block, keys, ...evidence }: CollectedEvidence,
): Promise<void> {
  const { provider, origin, kind, document } = evidence
  const row = { digest: decodeHex(digest), fetched_ms: fetchedAtMs }
  const made = block && JSON.stringify({ ...block, hash: encodeHex(block.hash) })
  await transaction
    .insertInto('provider_evidence')
    .values({ ...row, provider, origin, kind, ends_ms: endsAtMs, block: made, document })
    .onConflict((conflict) => conflict.doNothing())
    .execute()
  await transaction
    .insertInto('provider_evidence_keys')
    .values(keys.map((spki) => ({ ...row, origin, spki: decodeHex(spki) })))
    .onConflict((conflict) => conflict.doNothing())
    .execute()
}

type EvidenceRow = Pick<Tables['provider_evidence'], 'digest' | 'fetched_ms' | 'ends_ms' | 'block'>

function evidenceOf(row: EvidenceRow, keys: readonly string[]): StoredEvidence {
  return {
    digest: encodeHex(row.digest),
    fetchedAtMs: row.fetched_ms,
    endsAtMs: row.ends_ms,
    block: row.block === null ? null : blockOf(JSON.parse(row.block)),
    keys,
  }
}

/** A provider with many machines has many keys. */
const KEYS_LISTED_MAX = 100

type StoredBlock = Omit<NonceBlock, 'hash'> & { readonly hash: string }

function blockOf({ hash, ...block }: StoredBlock): NonceBlock {
  return { ...block, hash: decodeHex(hash) }
}
