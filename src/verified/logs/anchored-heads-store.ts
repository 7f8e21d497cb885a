import { type RawBuilder, sql } from 'kysely'
import { decodeHex } from '#attestation/bytes.ts'
import { currentAnchor, earlierHashes, firstCreatedAt } from '../../chain/anchors-store.ts'
import type { Database } from '../../storage/database.ts'
import { type HeadRow, type StoredHead, toHead } from './logs-store.ts'

export type AnchoredHead = StoredHead & {
  /** 0x, lower case. */
  readonly notary: string
}

/** Every method throws the driver's error. */
export type AnchoredHeadsStore = {
  /**
   * Finds heads by the hash (32 bytes, hex) of the anchor's transaction, and of the anchor's block.
   * Returns at most `limit` heads for each.
   */
  listByHash(hash: string, limit: number): Promise<readonly AnchoredHead[]>
  /** Heads whose anchor is in the block with this number. */
  listByBlock(number: number, limit: number): Promise<readonly AnchoredHead[]>
}

export function createAnchoredHeadsStore({
  queries,
}: Pick<Database, 'queries'>): AnchoredHeadsStore {
  /** Reads the heads of `anchors`, each with the anchor that is valid now. */
  async function readHeads(anchors: RawBuilder<unknown>): Promise<readonly AnchoredHead[]> {
    const { rows } = await sql<HeadRow & { readonly notary: string }>`
      select l.notary, c.size, c.root, c.signature, c.tx_hash, c.state, c.block_number, c.block_hash,
        ${firstCreatedAt('c')} as created_at, ${earlierHashes('c')} as replaces
      from (${anchors}) f cross join lateral ${currentAnchor('f')} c
      join logs l on l.id = c.log_id
      order by l.id desc, c.size desc`.execute(queries)
    return rows.map((row) => ({ ...toHead(row), notary: row.notary }))
  }
  return {
    // Each of the two queries uses an index. One query for both could read every anchor.
    listByHash: (hash, limit) =>
      readHeads(sql`
        (select * from anchors where tx_hash = ${decodeHex(hash)} limit ${limit})
        union all
        (select * from anchors where block_hash = ${decodeHex(hash)} limit ${limit})`),
    listByBlock: (number, limit) =>
      readHeads(sql`select * from anchors where block_number = ${number} limit ${limit}`),
  }
}
