import { sql } from 'kysely'
import { foldSubtrees } from '#attestation/merkle/hash.ts'
import { edgeNodes } from '#attestation/merkle/proof-nodes.ts'
import type { Database } from '../../storage/database.ts'
import { readNodes } from '../log-nodes-store.ts'

export type StoredHeadAttestation = {
  readonly size: number
  /** 32 bytes. */
  readonly root: Uint8Array
  readonly blockNumber: number
  /** 32 bytes. */
  readonly blockHash: Uint8Array
  /** COSE_Sign1. */
  readonly document: Uint8Array
  /** The document's timestamp, in whole Unix seconds. */
  readonly createdAt: number
}

/** Every method throws the driver's error. */
export type HeadAttestationsStore = {
  /**
   * The root (32 bytes) over the log's first `size` leaves. Reads O(log size) nodes. Null while
   * fewer leaves are committed. Throws when a node is missing.
   */
  findRoot(state: {
    readonly notary: string
    readonly size: number
  }): Promise<{ readonly logId: number; readonly root: Uint8Array } | null>
  /**
   * Stores an attestation if it is the first or the newest for its size. The database has at most
   * two attestations for each size, even if several gateways store them.
   */
  keep(attestation: StoredHeadAttestation & { readonly logId: number }): Promise<void>
  /** At most two for each size, the older one first. The caller must limit the range of sizes. */
  listHeadAttestations(range: HeadAttestationRange): Promise<readonly StoredHeadAttestation[]>
  /** Returns each size with attestations, ascending, and the total bytes of its documents. */
  weighHeadAttestations(
    range: HeadAttestationRange,
  ): Promise<readonly { readonly size: number; readonly bytes: number }[]>
}

/** Sizes above `afterSize` (null: from 0), up to `throughSize` (null: no limit). */
export type HeadAttestationRange = {
  readonly logId: number
  readonly afterSize: number | null
  readonly throughSize: number | null
}

export function createHeadAttestationsStore({
  queries,
}: Pick<Database, 'queries'>): HeadAttestationsStore {
  return {
    async findRoot({ notary, size }) {
      const log = await queries
        .selectFrom('logs')
        .select('id')
        .where('notary', '=', notary)
        .where('size', '>=', size)
        .executeTakeFirst()
      if (log === undefined) return null
      const edge = edgeNodes(size).map((node) => ({ ...node, logId: log.id }))
      const hashAt = await readNodes(queries, edge)
      return { logId: log.id, root: foldSubtrees(edge.map(hashAt)) }
    },
    async keep({ logId, size, root, blockNumber, blockHash, document, createdAt }) {
      await sql`
        with given as (
          select ${logId}::integer as log_id, ${size}::bigint as size, ${root}::bytea as root,
            ${blockNumber}::bigint as block_number, ${blockHash}::bytea as block_hash,
            ${document}::bytea as document, ${createdAt}::bigint as created_at
        ), first as (
          insert into head_attestations (log_id, size, is_first, root, block_number, block_hash,
            document, created_at)
          select log_id, size, true, root, block_number, block_hash, document, created_at from given
          on conflict do nothing returning size
        )
        insert into head_attestations as kept
          (log_id, size, is_first, root, block_number, block_hash, document, created_at)
        select log_id, size, false, root, block_number, block_hash, document, created_at from given
        where not exists (select from first)
        on conflict (log_id, size, is_first) do update
          set root = excluded.root, block_number = excluded.block_number, block_hash = excluded.block_hash,
            document = excluded.document, created_at = excluded.created_at
          where kept.created_at <= excluded.created_at`.execute(queries)
    },
    async listHeadAttestations({ logId, afterSize, throughSize }) {
      const rows = await queries
        .selectFrom('head_attestations')
        .select(['size', 'root', 'block_number', 'block_hash', 'document', 'created_at'])
        .where('log_id', '=', logId)
        .where('size', '>', afterSize ?? -1)
        .where('size', '<=', throughSize ?? Number.MAX_SAFE_INTEGER)
        .orderBy('size')
        .orderBy('is_first', 'desc')
        .execute()
      return rows.map((row) => ({
        size: row.size,
        root: row.root,
        blockNumber: row.block_number,
        blockHash: row.block_hash,
        document: row.document,
        createdAt: row.created_at,
      }))
    },
    async weighHeadAttestations({ logId, afterSize, throughSize }) {
      const { rows } = await sql<{ size: number; bytes: number }>`
        select size, sum(octet_length(document))::integer as bytes from head_attestations
        where log_id = ${logId} and size > ${afterSize ?? -1}
          and size <= ${throughSize ?? Number.MAX_SAFE_INTEGER}
        group by size order by size`.execute(queries)
      return rows
    },
  }
}
