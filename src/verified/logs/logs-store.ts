import { type RawBuilder, sql } from 'kysely'
import { encodeHex } from '#attestation/bytes.ts'
import { foldSubtrees } from '#attestation/merkle/hash.ts'
import {
  buildProof,
  consistencyNodes,
  edgeNodes,
  inclusionNodes,
  type NodeCoordinate,
} from '#attestation/merkle/proof-nodes.ts'
import {
  type AnchorState,
  currentAnchor,
  earlierHashes,
  firstCreatedAt,
  parseHashes,
} from '../../chain/anchors-store.ts'
import type { Database } from '../../storage/database.ts'
import { readNodes } from '../log-nodes-store.ts'

export type StoredHead = {
  readonly size: number
  /** 32 bytes. */
  readonly root: Uint8Array
  /** The notary's signature, 65 bytes. */
  readonly signature: Uint8Array
  /** When the head was committed, Unix seconds. */
  readonly createdAt: number
  readonly anchor: {
    /** 0x hex. `blockHash` has the same form. */
    readonly txHash: string
    /**
     * Transaction hashes of earlier published anchors of this head, oldest first. These anchors
     * could not be mined.
     */
    readonly replaces: readonly string[]
    /**
     * An anchor that cannot be mined is also `pending`, because another transaction will replace
     * it.
     */
    readonly state: Exclude<AnchorState, 'taken'>
    /** Null while the anchor is in no block. */
    readonly blockNumber: number | null
    readonly blockHash: string | null
  }
}

export type StoredLog = {
  /** Key of the log in this database. */
  readonly logId: number
  /** 0x, lower case. */
  readonly notary: string
  /** 0x + 65 bytes. */
  readonly publicKey: string
  readonly chainId: number
  readonly contract: string
  /** Canonical JSON. */
  readonly bootConfiguration: string
  /** When the log was first seen, Unix seconds. */
  readonly createdAt: number
  /** Number of leaves under an anchored head. `root` is the root over these leaves. */
  readonly size: number
  readonly root: Uint8Array
  /** The newest head whose anchor is in a block. */
  readonly head: StoredHead | null
  /** SHA-256 (hex) of the newest record's attestation document. Null without records. */
  readonly attestationDigest: string | null
}

/**
 * Reads logs. Results contain hashes of leaves, but no completions. Every method throws the
 * driver's error.
 */
export type LogsStore = {
  find(notary: string): Promise<StoredLog | null>
  /** Returns logs, newest first, after the log of notary `cursor` (null: from the newest log). */
  list(query: {
    readonly limit: number
    readonly cursor: string | null
  }): Promise<{ readonly logs: readonly StoredLog[]; readonly hasMore: boolean } | 'unknown_cursor'>
  /** Heads with more leaves than `afterSize` (null: from the first head), ascending by size. */
  listHeads(query: {
    readonly logId: number
    readonly afterSize: number | null
    readonly limit: number
  }): Promise<readonly StoredHead[]>
  /** Heads with fewer leaves than `beforeSize` (null: from the last head), descending by size. */
  listHeadsBefore(query: {
    readonly logId: number
    readonly beforeSize: number | null
    readonly limit: number
  }): Promise<readonly StoredHead[]>
  /**
   * The hash of leaf `index`, its inclusion path in the first `size` leaves, and their root. Reads
   * at most 3 × log2(size) nodes. `index` < `size` ≤ the committed size.
   */
  readInclusion(query: {
    readonly logId: number
    readonly index: number
    readonly size: number
  }): Promise<InclusionProof>
  /**
   * Proves that the first `to` leaves begin with the first `from` leaves. `from` ≤ `to` ≤ the
   * committed size.
   */
  readConsistency(query: {
    readonly logId: number
    readonly from: number
    readonly to: number
  }): Promise<readonly Uint8Array[]>
  /** Hashes of the leaves from `start` to `end` - 1. `end` ≤ the committed size. */
  listLeaves(query: {
    readonly logId: number
    readonly start: number
    readonly end: number
  }): Promise<readonly Uint8Array[]>
}

type InclusionProof = {
  readonly leafHash: Uint8Array
  readonly path: readonly Uint8Array[]
  readonly root: Uint8Array
}

// biome-ignore lint/complexity/noExcessiveLinesPerFunction: the statements of one store
export function createLogsStore({ queries }: Pick<Database, 'queries'>): LogsStore {
  async function readLogs(
    where: RawBuilder<unknown>,
    limit: number,
  ): Promise<readonly StoredLog[]> {
    const { rows } = await sql<LogRow>`
      select l.id, l.notary, l.public_key, l.chain_id, l.contract, l.boot_configuration, l.created_at,
        coalesce(u.first_index, l.size) as size, coalesce(u.anchored_root, l.root) as root,
        h.size as head_size, h.root as head_root, h.signature, h.tx_hash,
        ${firstCreatedAt('h')} as head_created_at,
        h.state, h.block_number, h.block_hash, ${earlierHashes('h')} as replaces, r.document_digest
      from (select * from logs where ${where} order by id desc limit ${limit}) l
      left join unanchored_heads u on u.log_id = l.id
      left join lateral (
        select * from anchors a where a.log_id = l.id and a.state in ('mined', 'confirmed')
        order by a.size desc, a.attempt limit 1) h on true
      left join lateral (
        select document_digest from records where log_id = l.id order by index desc limit 1) r on true
      order by l.id desc`.execute(queries)
    return rows.map(toLog)
  }

  /** Reads heads with sizes above `from` (`beyond` is `>`), or below `from` (`beyond` is `<`). */
  async function readHeads(page: {
    readonly logId: number
    readonly from: number
    readonly beyond: RawBuilder<unknown>
    readonly order: RawBuilder<unknown>
    readonly limit: number
  }): Promise<readonly StoredHead[]> {
    const { logId, from, beyond, order, limit } = page
    // Reads the heads one by one through the index. A plain query would read and sort all remaining
    // heads, because an embedded database has no statistics.
    const { rows } = await sql<HeadRow>`
      with recursive page as (
        (select ${pageColumns}, 1 as place from anchors
          where log_id = ${logId} and size ${beyond} ${from} order by size ${order} limit 1)
        union all
        select next.*, place + 1 from page cross join lateral (
          select ${pageColumns} from anchors a
          where a.log_id = ${logId} and a.size ${beyond} page.size order by a.size ${order} limit 1) next
        where place < ${limit}
      )
      select p.size, p.root, p.signature, coalesce(c.tx_hash, p.tx_hash) as tx_hash,
        coalesce(c.state, p.state) as state, coalesce(c.block_number, p.block_number) as block_number,
        coalesce(c.block_hash, p.block_hash) as block_hash, ${firstCreatedAt('p')} as created_at,
        ${earlierHashes('c')} as replaces
      from page p left join lateral ${currentAnchor('p', sql`(p.attempt > 0 or p.state = 'taken')`)} c on true
      order by p.size ${order}`.execute(queries)
    return rows.map(toHead)
  }

  async function readOf(logId: number, coordinates: readonly NodeCoordinate[]) {
    const hashAt = await readNodes(
      queries,
      coordinates.map((coordinate) => ({ ...coordinate, logId })),
    )
    return (coordinate: NodeCoordinate) => hashAt({ ...coordinate, logId })
  }

  return {
    async find(notary) {
      return (await readLogs(sql`notary = ${notary}`, 1))[0] ?? null
    },
    async list({ limit, cursor }) {
      const before =
        cursor === null
          ? { id: null }
          : await queries
              .selectFrom('logs')
              .select('id')
              .where('notary', '=', cursor)
              .executeTakeFirst()
      if (before === undefined) return 'unknown_cursor'
      const logs = await readLogs(
        before.id === null ? sql`true` : sql`id < ${before.id}`,
        limit + 1,
      )
      return { logs: logs.slice(0, limit), hasMore: logs.length > limit }
    },
    listHeads: ({ logId, afterSize, limit }) =>
      readHeads({ logId, from: afterSize ?? -1, beyond: sql`>`, order: sql`asc`, limit }),
    listHeadsBefore: ({ logId, beforeSize, limit }) =>
      readHeads({
        logId,
        from: beforeSize ?? Number.MAX_SAFE_INTEGER,
        limit,
        beyond: sql`<`,
        order: sql`desc`,
      }),
    async readInclusion({ logId, index, size }) {
      const leaf = { level: 0, index }
      const proof = inclusionNodes(index, size)
      const edge = edgeNodes(size)
      const hashAt = await readOf(logId, [leaf, ...proof.flat(), ...edge])
      return {
        leafHash: hashAt(leaf),
        path: buildProof(proof, hashAt),
        root: foldSubtrees(edge.map(hashAt)),
      }
    },
    async readConsistency({ logId, from, to }) {
      const proof = consistencyNodes(from, to)
      return buildProof(proof, await readOf(logId, proof.flat()))
    },
    async listLeaves({ logId, start, end }) {
      const rows = await queries
        .selectFrom('log_nodes')
        .select('hash')
        .where('log_id', '=', logId)
        .where('level', '=', 0)
        .where('index', '>=', start)
        .where('index', '<', end)
        .orderBy('index')
        .limit(end - start)
        .execute()
      if (rows.length !== end - start)
        throw new Error(
          `expected ${end - start} stored leaves from ${start} of log ${logId}, got ${rows.length}`,
        )
      return rows.map((row) => row.hash)
    },
  }
}

const pageColumns = sql`size, root, signature, created_at, tx_hash, state, block_number, block_hash,
  relayer, nonce, origin_relayer, origin_nonce, attempt`

export type HeadRow = {
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
  readonly created_at: number
  readonly tx_hash: Uint8Array
  readonly state: AnchorState
  readonly block_number: number | null
  readonly block_hash: Uint8Array | null
  readonly replaces: string | null
}

type LogRow = Omit<HeadRow, 'tx_hash'> & {
  readonly id: number
  readonly notary: string
  readonly public_key: Uint8Array
  readonly chain_id: number
  readonly contract: string
  readonly boot_configuration: string
  /** This and the columns of the head are null while no anchor is in a block. */
  readonly tx_hash: Uint8Array | null
  readonly head_size: number
  readonly head_root: Uint8Array
  readonly head_created_at: number
  readonly document_digest: Uint8Array | null
}

function toLog(row: LogRow): StoredLog {
  const head =
    row.tx_hash === null
      ? null
      : toHead({
          ...row,
          tx_hash: row.tx_hash,
          size: row.head_size,
          root: row.head_root,
          created_at: row.head_created_at,
        })
  return {
    logId: row.id,
    notary: row.notary,
    publicKey: `0x${encodeHex(row.public_key)}`,
    chainId: row.chain_id,
    contract: row.contract,
    bootConfiguration: row.boot_configuration,
    createdAt: row.created_at,
    size: row.size,
    root: row.root,
    head,
    attestationDigest: row.document_digest && encodeHex(row.document_digest),
  }
}

export function toHead(row: HeadRow): StoredHead {
  return {
    size: row.size,
    root: row.root,
    signature: row.signature,
    createdAt: row.created_at,
    anchor: {
      txHash: `0x${encodeHex(row.tx_hash)}`,
      replaces: parseHashes(row.replaces),
      state: row.state === 'taken' ? 'pending' : row.state,
      blockNumber: row.block_number,
      blockHash: row.block_hash && `0x${encodeHex(row.block_hash)}`,
    },
  }
}
