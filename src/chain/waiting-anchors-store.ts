import { sql } from 'kysely'
import { encodeHex } from '#attestation/bytes.ts'
import type { Database } from '../storage/database.ts'
import { hasSuccessor } from './anchors-store.ts'

export type WaitingAnchor = {
  /** `relayer`, `txHash` and `notary` are 0x, lower case. */
  readonly relayer: string
  readonly nonce: number
  readonly txHash: string
  readonly notary: string
  /** Size of the anchored head. */
  readonly size: number
  /** `taken`: another transaction used the nonce, so a new anchor must be made. */
  readonly state: 'pending' | 'mined' | 'taken'
  /** Null while the anchor is in no block. */
  readonly blockNumber: number | null
  /** Unix seconds. */
  readonly createdAt: number
  /** Number of earlier anchors for the same head. */
  readonly attempt: number
}

/** Lists the waiting anchors of all relayers, the oldest first. Throws the driver's error. */
export async function listWaitingAnchors(
  { queries }: Pick<Database, 'queries'>,
  limit: number,
): Promise<readonly WaitingAnchor[]> {
  const { rows } = await sql<WaitingRow>`
    select a.relayer, a.nonce, a.tx_hash, a.size, a.state, a.block_number, a.created_at, a.attempt,
      (select notary from logs where id = a.log_id) as notary
    from (
      select * from anchors where state in ('pending', 'mined')
      union all
      select * from anchors t where state = 'taken' and not ${hasSuccessor('t')}
    ) a order by a.created_at, a.relayer, a.nonce limit ${limit}`.execute(queries)
  return rows.map((row) => ({
    relayer: row.relayer,
    nonce: row.nonce,
    txHash: `0x${encodeHex(row.tx_hash)}`,
    notary: row.notary,
    size: row.size,
    state: row.state,
    blockNumber: row.block_number,
    createdAt: row.created_at,
    attempt: row.attempt,
  }))
}

type WaitingRow = Pick<
  WaitingAnchor,
  'relayer' | 'nonce' | 'notary' | 'size' | 'state' | 'attempt'
> & {
  readonly tx_hash: Uint8Array
  readonly block_number: number | null
  readonly created_at: number
}
