import { sql } from 'kysely'
import { encodeHex } from '#attestation/bytes.ts'
import type { BootHead } from '#attestation/evidence/boot-statement.ts'
import type { LogDomain } from '#attestation/tree-head.ts'
import type { Database } from '../../storage/database.ts'

/** What a new enclave stated about the logs of other enclaves, while its own log was empty. */
export type StoredBootStatement = {
  /** The enclave's notary, 0x, lower case. */
  readonly notary: string
  /** JSON array of heads, exactly as the attestation document covers it. */
  readonly heads: string
  /** COSE_Sign1. */
  readonly document: Uint8Array
  /** The document's timestamp, in whole Unix seconds. */
  readonly createdAt: number
}

/** Every method throws the driver's error. */
export type BootStatementsStore = {
  find(notary: string): Promise<StoredBootStatement | null>
  /** Does nothing if the notary already has a statement, because an enclave makes only one. */
  keep(statement: StoredBootStatement): Promise<void>
  /** The newest head of each log for this chain and contract, newest logs first. */
  listNewestHeads(domain: LogDomain, limit: number): Promise<readonly BootHead[]>
}

export function createBootStatementsStore({
  queries,
}: Pick<Database, 'queries'>): BootStatementsStore {
  return {
    async find(notary) {
      const row = await queries
        .selectFrom('boot_statements')
        .selectAll()
        .where('notary', '=', notary)
        .executeTakeFirst()
      return row === undefined ? null : { ...row, createdAt: row.created_at }
    },
    async keep({ notary, heads, document, createdAt }) {
      await queries
        .insertInto('boot_statements')
        .values({ notary, heads, document, created_at: createdAt })
        .onConflict((conflict) => conflict.doNothing())
        .execute()
    },
    async listNewestHeads({ chainId, contract }, limit) {
      const { rows } = await sql<HeadRow>`
        select l.notary, h.size, h.root, h.signature
        from logs l cross join lateral (
          select size, root, signature from anchors a where a.log_id = l.id order by a.size desc limit 1) h
        where l.chain_id = ${chainId} and l.contract = ${contract}
        order by l.id desc limit ${limit}`.execute(queries)
      return rows.map(({ notary, size, root, signature }) => ({
        notary,
        size,
        root: encodeHex(root),
        signature: `0x${encodeHex(signature)}`,
      }))
    },
  }
}

type HeadRow = {
  readonly notary: string
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
}
