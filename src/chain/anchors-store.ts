import { type Selectable, sql } from 'kysely'
import { encodeHex } from '../../attestation/bytes.ts'
import type { Database } from '../storage/database.ts'
import type { Tables } from '../storage/tables.ts'
import type { Anchor, AnchorsStore } from './anchors-port.ts'

/** Anchors as the broadcaster sees them; commits.ts stores them. Throws the driver's error when the database fails. */
export function createAnchorsStore({ queries }: Pick<Database, 'queries'>): AnchorsStore {
  return {
    async listFrom(relayer, nonce, limit) {
      const rows = await queries
        .selectFrom('anchors')
        .select(['relayer', 'nonce', 'tx_hash', 'raw', 'state', 'block_number', 'block_hash'])
        .where('relayer', '=', relayer)
        .where('nonce', '>=', nonce)
        .orderBy('nonce')
        .limit(limit)
        .execute()
      return rows.map(toAnchor)
    },
    async lowestUnsettled(relayer) {
      // Literals, so that the planner sees the partial index of just these.
      const row = await queries
        .selectFrom('anchors')
        .select('nonce')
        .where('relayer', '=', relayer)
        .where(sql<boolean>`state in ('pending', 'mined')`)
        .orderBy('nonce')
        .limit(1)
        .executeTakeFirst()
      return row?.nonce ?? null
    },
    async highestNonce(relayer) {
      const row = await queries
        .selectFrom('anchors')
        .select('nonce')
        .where('relayer', '=', relayer)
        .orderBy('nonce', 'desc')
        .limit(1)
        .executeTakeFirst()
      return row?.nonce ?? null
    },
    async markMined(relayer, rows) {
      if (rows.length === 0) return
      await sql`
        update anchors set state = case when m.succeeded then 'mined' else 'reverted' end,
          block_number = m.block_number, block_hash = decode(substring(m.block_hash from 3), 'hex'), gas_used = m.gas_used
        from unnest(
          ${rows.map((row) => row.nonce)}::bigint[], ${rows.map((row) => row.blockNumber)}::bigint[],
          ${rows.map((row) => row.blockHash)}::text[], ${rows.map((row) => row.succeeded)}::boolean[],
          ${rows.map((row) => row.gasUsed)}::bigint[]) as m(nonce, block_number, block_hash, succeeded, gas_used)
        where anchors.relayer = ${relayer} and anchors.nonce = m.nonce`.execute(queries)
    },
    async markTaken(relayer, nonces) {
      if (nonces.length === 0) return
      await sql`
        update anchors set state = 'taken'
        where relayer = ${relayer} and nonce = any (${[...nonces]}::bigint[]) and state = 'pending'`.execute(
        queries,
      )
    },
    async markConfirmed(relayer, throughNonce) {
      await queries
        .updateTable('anchors')
        .set({ state: 'confirmed' })
        .where('relayer', '=', relayer)
        .where('nonce', '<=', throughNonce)
        .where('state', '=', 'mined')
        .execute()
    },
    async markLost(relayer, fromNonce) {
      await queries
        .updateTable('anchors')
        .set({ state: 'pending', block_number: null, block_hash: null, gas_used: null })
        .where('relayer', '=', relayer)
        .where('nonce', '>=', fromNonce)
        .where('state', '<>', 'pending')
        .execute()
    },
  }
}

type AnchorRow = Pick<
  Selectable<Tables['anchors']>,
  'relayer' | 'nonce' | 'tx_hash' | 'raw' | 'state' | 'block_number' | 'block_hash'
>

function toAnchor(row: AnchorRow): Anchor {
  return {
    relayer: row.relayer,
    nonce: row.nonce,
    txHash: `0x${encodeHex(row.tx_hash)}`,
    raw: `0x${encodeHex(row.raw)}`,
    state: row.state,
    blockNumber: row.block_number,
    blockHash: row.block_hash === null ? null : `0x${encodeHex(row.block_hash)}`,
  }
}
