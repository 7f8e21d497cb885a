import { type RawBuilder, type Selectable, sql } from 'kysely'
import { encodeHex } from '#attestation/bytes.ts'
import type { Database } from '../storage/database.ts'
import type { Tables } from '../storage/tables.ts'
import type { TransactionReceipt } from './chain-reads.ts'

/**
 * States of an anchor transaction.
 *
 * - `pending`: stored and signed; not known to be in a block (never sent, sent, or lost by a
 *   reorganisation).
 * - `mined`: in a block that a reorganisation may still undo.
 * - `confirmed`: has the configured number of confirmations. It is still watched: a deep
 *   reorganisation, or a local chain that came back from an older state, makes it pending again.
 * - `reverted`: in a block, and failed there. Final: it is reported, and never sent again.
 * - `taken`: never in a block, because another transaction of the relayer used its nonce. A new
 *   anchor replaces it. It becomes pending again only if a reorganisation undoes the transaction
 *   that took its nonce.
 */
export type AnchorState = 'pending' | 'mined' | 'confirmed' | 'reverted' | 'taken'

/** `(relayer, nonce)` is the key. `raw` never changes. */
export type Anchor = {
  /** 0x, lower case. */
  readonly relayer: string
  readonly nonce: number
  /** Keccak-256 of `raw`, 0x, lower case. Callers receive it as `tx_hash`. */
  readonly txHash: string
  /** The signed transaction, 0x hex, as `eth_sendRawTransaction` takes it. */
  readonly raw: string
  readonly state: AnchorState
  /** Null while the anchor is pending. */
  readonly blockNumber: number | null
  readonly blockHash: string | null
}

export type MinedAnchor = { readonly nonce: number } & Omit<TransactionReceipt, 'txHash'>

/**
 * What the broadcaster needs from the database. A commit stores an anchor and raises the relayer's
 * next nonce in one database transaction. A nonce is skipped only if the chain has transactions
 * that the database has lost.
 */
export type AnchorsStore = {
  /** Nonces from `nonce` on, ascending. */
  listFrom(relayer: string, nonce: number, limit: number): Promise<readonly Anchor[]>
  /** The lowest nonce of a pending or mined anchor. */
  lowestUnsettled(relayer: string): Promise<number | null>
  highestNonce(relayer: string): Promise<number | null>
  /** A row becomes mined, or reverted if the transaction failed. Idempotent. */
  markMined(relayer: string, rows: readonly MinedAnchor[]): Promise<void>
  /** Changes only pending rows. Idempotent. */
  markTaken(relayer: string, nonces: readonly number[]): Promise<void>
  /** Changes only mined rows. */
  markConfirmed(relayer: string, throughNonce: number): Promise<void>
  /** Resets all rows from `fromNonce` on to pending, and deletes their blocks. */
  markLost(relayer: string, fromNonce: number): Promise<void>
}

/** commits-store.ts in src/verified adds the anchors. Every method throws the driver's error. */
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
      // The states are literals, so the query can use the partial index.
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
          block_number = m.block_number, block_hash = decode(substring(m.block_hash from 3), 'hex'),
          gas_used = m.gas_used
        from unnest(
          ${rows.map((row) => row.nonce)}::bigint[], ${rows.map((row) => row.blockNumber)}::bigint[],
          ${rows.map((row) => row.blockHash)}::text[], ${rows.map((row) => row.succeeded)}::boolean[],
          ${rows.map((row) => row.gasUsed)}::bigint[]
        ) as m(nonce, block_number, block_hash, succeeded, gas_used)
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

/**
 * A head's records contain the hash of its first anchor. The head gets a further anchor if another
 * transaction took its anchor's nonce. A further anchor stores the key of the first one (origin_*)
 * and the number of anchors before it (attempt). The SQL fragments below read this sequence of
 * anchors. Each fragment takes the alias of an anchor's row.
 */

/** The hashes of the anchors after `first`, for `parseHashes`. */
export function laterHashes(first: string): RawBuilder<string | null> {
  return sql`(
    select string_agg(encode(x.tx_hash, 'hex'), ',' order by x.attempt) from anchors x
    where x.attempt > 0 and x.origin_relayer = ${sql.ref(`${first}.relayer`)}
      and x.origin_nonce = ${sql.ref(`${first}.nonce`)})`
}

/**
 * Selects one anchor of the row's sequence: the earliest anchor in a block, or the last anchor if
 * no anchor is in a block. Only anchors with `when` count. Two lookups are used, because one lookup
 * with `or` would read every anchor in a database without statistics.
 */
export function currentAnchor(
  row: string,
  when: RawBuilder<boolean> = sql`true`,
): RawBuilder<unknown> {
  const { relayer, nonce } = firstOf(row)
  return sql`(
    select c.* from (
      select x.* from anchors x where ${when} and x.relayer = ${relayer} and x.nonce = ${nonce}
      union all
      select x.* from anchors x
      where ${when} and x.attempt > 0 and x.origin_relayer = ${relayer} and x.origin_nonce = ${nonce}
    ) c
    order by c.state in ('mined', 'confirmed') desc,
      case when c.state in ('mined', 'confirmed') then c.attempt else -c.attempt end
    limit 1)`
}

/** The hashes of the anchors before `current`, for `parseHashes`. Null for the first anchor. */
export function earlierHashes(current: string): RawBuilder<string | null> {
  const of = (column: string) => sql.ref(`${current}.${column}`)
  return sql`case when ${of('attempt')} > 0 then (
    select string_agg(encode(x.tx_hash, 'hex'), ',' order by x.attempt) from anchors x
    where x.attempt < ${of('attempt')} and (
      (x.relayer = ${of('origin_relayer')} and x.nonce = ${of('origin_nonce')})
      or (x.attempt > 0 and x.origin_relayer = ${of('origin_relayer')}
        and x.origin_nonce = ${of('origin_nonce')})))
  end`
}

export function hasSuccessor(row: string): RawBuilder<boolean> {
  const { relayer, nonce } = firstOf(row)
  // The condition `attempt > 0` lets the query use the partial index.
  return sql`exists (
    select from anchors s
    where s.attempt = ${sql.ref(`${row}.attempt`)} + 1 and s.attempt > 0
      and s.origin_relayer = ${relayer} and s.origin_nonce = ${nonce})`
}

/** The key of the first anchor in the row's sequence. */
function firstOf(row: string): {
  readonly relayer: RawBuilder<unknown>
  readonly nonce: RawBuilder<unknown>
} {
  const of = (column: string) => sql.ref(`${row}.${column}`)
  return {
    relayer: sql`coalesce(${of('origin_relayer')}, ${of('relayer')})`,
    nonce: sql`coalesce(${of('origin_nonce')}, ${of('nonce')})`,
  }
}

/** Reads the result of laterHashes or earlierHashes. Returns hashes in 0x hex. */
export function parseHashes(list: string | null): readonly string[] {
  return list === null ? [] : list.split(',').map((hash) => `0x${hash}`)
}

/** When the head of the row's sequence was committed, Unix seconds. */
export function firstCreatedAt(row: string): RawBuilder<number> {
  const of = (column: string) => sql.ref(`${row}.${column}`)
  return sql`case when ${of('attempt')} = 0 then ${of('created_at')} else (
    select f.created_at from anchors f
    where f.relayer = ${of('origin_relayer')} and f.nonce = ${of('origin_nonce')})
  end`
}
