import { sql } from 'kysely'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { decodeRlp, encodeRlp, rlpBytes, rlpList } from '#attestation/evidence/rlp.ts'
import type { Database } from '../storage/database.ts'
import { currentAnchor } from './anchors-store.ts'

/** `hash` is 0x, lower case. */
export type BlockPlace = { readonly number: number; readonly hash: string }

/**
 * Proves that a transaction and its receipt are in a block. Evidence contains the same
 * members (attestation/evidence, Format).
 */
export type BlockProof = BlockPlace & {
  /** RLP. */
  readonly header: Uint8Array
  readonly transactionIndex: number
  /** Nodes of the transactions trie, from the root to the leaf. */
  readonly transactionProof: readonly Uint8Array[]
  /** Nodes of the receipts trie, from the root to the leaf. */
  readonly receiptProof: readonly Uint8Array[]
}

export type AnchorEvidence = {
  /** 0x, lower case. */
  readonly txHash: string
  /** Signed transaction, 0x hex. */
  readonly raw: string
  /** The configuration with which the log's enclave started, as canonical JSON. */
  readonly bootConfiguration: string
  readonly chainId: number
  /** Null if no block contains the anchor, or if the anchor failed in its block. */
  readonly block: BlockPlace | null
  readonly proof: BlockProof | null
}

export type AnchorBlockProof = {
  readonly relayer: string
  readonly nonce: number
  readonly proof: BlockProof
}

/** Every method throws the driver's error. */
export type AnchorBlocksStore = {
  /** Finds an anchor by its 0x hash, or the replacement of a taken anchor. Null if unknown. */
  findAnchor(txHash: string): Promise<AnchorEvidence | null>
  /**
   * Returns the first block with a confirmed anchor that has no stored proof. Searches only after
   * the block `after`, if not null. A proof from before a reorganisation does not count.
   */
  nextUnproven(chainId: number, after: BlockPlace | null): Promise<BlockPlace | null>
  /** Returns the anchors that were seen in this block and have one of these hashes. */
  listInBlock(
    blockHash: string,
    txHashes: readonly string[],
  ): Promise<
    readonly { readonly relayer: string; readonly nonce: number; readonly txHash: string }[]
  >
  /** Ignores proofs of anchors that are no longer recorded in the proof's block. Idempotent. */
  save(proofs: readonly AnchorBlockProof[]): Promise<void>
}

export function createAnchorBlocksStore({ queries }: Pick<Database, 'queries'>): AnchorBlocksStore {
  return {
    async findAnchor(txHash) {
      const { rows } = await sql<AnchorRow>`
        select a.tx_hash, a.raw, l.boot_configuration, l.chain_id,
          case when a.state in ('mined', 'confirmed') then a.block_number end as block_number, a.block_hash,
          b.number, b.header, b.transaction_index, b.transaction_proof, b.receipt_proof
        from anchors f cross join lateral ${currentAnchor('f')} a
        join logs l on l.id = a.log_id
        left join anchor_blocks b
          on b.relayer = a.relayer and b.nonce = a.nonce and b.block_hash = a.block_hash
        where f.tx_hash = ${decodeHex(txHash)}`.execute(queries)
      return rows[0] === undefined ? null : toEvidence(rows[0])
    },
    async nextUnproven(chainId, after) {
      const isLater =
        after === null
          ? sql`true`
          : sql`(a.block_number, a.block_hash) > (${after.number}::bigint, ${decodeHex(after.hash)}::bytea)`
      // This query does not join logs, because a join would read every anchor (see listBacklogs).
      const { rows } = await sql<{ block_number: number; block_hash: Uint8Array }>`
        select a.block_number, a.block_hash from anchors a
        where a.state = 'confirmed' and a.proven_block_hash is distinct from a.block_hash and ${isLater}
          and (select chain_id from logs where id = a.log_id) = ${chainId}
        order by a.block_number, a.block_hash limit 1`.execute(queries)
      const [row] = rows
      return row === undefined
        ? null
        : { number: row.block_number, hash: `0x${encodeHex(row.block_hash)}` }
    },
    async listInBlock(blockHash, txHashes) {
      if (txHashes.length === 0) return []
      const { rows } = await sql<{ relayer: string; nonce: number; tx_hash: Uint8Array }>`
        select a.relayer, a.nonce, a.tx_hash
        from unnest(${txHashes.map((hash) => hash.slice('0x'.length))}::text[]) as t(hash)
        cross join lateral (
          select relayer, nonce, tx_hash, block_hash from anchors
          where tx_hash = decode(t.hash, 'hex') limit 1) a
        where a.block_hash = ${decodeHex(blockHash)}`.execute(queries)
      return rows.map(({ relayer, nonce, tx_hash }) => ({
        relayer,
        nonce,
        txHash: `0x${encodeHex(tx_hash)}`,
      }))
    },
    async save(proofs) {
      if (proofs.length === 0) return
      await sql`
        with given as (
          select g.relayer, g.nonce, decode(g.block_hash, 'hex') as block_hash, g.number,
            decode(g.header, 'hex') as header, g.transaction_index,
            decode(g.transaction_proof, 'hex') as transaction_proof,
            decode(g.receipt_proof, 'hex') as receipt_proof
          from json_to_recordset(${JSON.stringify(proofs.map(describeProof))}::text::json) as g(
            relayer text, nonce bigint, block_hash text, number bigint, header text,
            transaction_index integer, transaction_proof text, receipt_proof text)
        ), stored as (
          insert into anchor_blocks (
            relayer, nonce, block_hash, number, header, transaction_index, transaction_proof, receipt_proof)
          select g.* from given g
          join anchors a on a.relayer = g.relayer and a.nonce = g.nonce and a.block_hash = g.block_hash
          order by g.relayer, g.nonce
          on conflict (relayer, nonce) do update
            set block_hash = excluded.block_hash, number = excluded.number,
            header = excluded.header, transaction_index = excluded.transaction_index,
            transaction_proof = excluded.transaction_proof, receipt_proof = excluded.receipt_proof
          returning relayer, nonce, block_hash
        )
        update anchors a set proven_block_hash = s.block_hash
        from stored s where a.relayer = s.relayer and a.nonce = s.nonce`.execute(queries)
    },
  }
}

type AnchorRow = {
  readonly tx_hash: Uint8Array
  readonly raw: Uint8Array
  readonly boot_configuration: string
  readonly chain_id: number
  readonly block_number: number | null
  readonly block_hash: Uint8Array | null
  /** Null if no proof is stored for this block. The members below are then null too. */
  readonly header: Uint8Array | null
  readonly number: number
  readonly transaction_index: number
  readonly transaction_proof: Uint8Array
  readonly receipt_proof: Uint8Array
}

function toEvidence(row: AnchorRow): AnchorEvidence {
  const { block_number: number, block_hash: hash } = row
  const block = number === null || hash === null ? null : { number, hash: `0x${encodeHex(hash)}` }
  return {
    txHash: `0x${encodeHex(row.tx_hash)}`,
    raw: `0x${encodeHex(row.raw)}`,
    bootConfiguration: row.boot_configuration,
    chainId: row.chain_id,
    block,
    proof:
      block === null || row.header === null
        ? null
        : {
            ...block,
            header: row.header,
            transactionIndex: row.transaction_index,
            transactionProof: decodeNodes(row.transaction_proof),
            receiptProof: decodeNodes(row.receipt_proof),
          },
  }
}

function describeProof({ relayer, nonce, proof }: AnchorBlockProof) {
  return {
    relayer,
    nonce,
    block_hash: proof.hash.slice('0x'.length),
    number: proof.number,
    header: encodeHex(proof.header),
    transaction_index: proof.transactionIndex,
    transaction_proof: encodeHex(encodeRlp(proof.transactionProof)),
    receipt_proof: encodeHex(encodeRlp(proof.receiptProof)),
  }
}

function decodeNodes(list: Uint8Array): readonly Uint8Array[] {
  return rlpList(decodeRlp(list), 'the stored proof').map((node) => rlpBytes(node, 'its nodes'))
}
