import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import type { Database } from '#src/storage/database.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import {
  type AnchoredHeadsStore,
  createAnchoredHeadsStore,
} from '#src/verified/logs/anchored-heads-store.ts'
import { useDatabases } from '../../../support/databases.ts'
import { makeLog, minedAt, storeCommits, type TestLog } from '../commits/build-commit.ts'

const BLOCK_HASH = 'bb'.repeat(32)

const source = await useDatabases()
const database = await source.open()
const heads = createAnchoredHeadsStore(database)

const mine = (log: TestLog, nonces: readonly number[], blockNumber: number) =>
  createAnchorsStore(database).markMined(
    log.relayer,
    nonces.map((nonce) => minedAt(nonce, blockNumber, `0x${BLOCK_HASH}`)),
  )

it('heads are found by transaction, by the number of their block and by its hash, of all logs', async () => {
  const [one, other] = [makeLog(), makeLog()]
  const { stored } = await storeCommits(createCommitsStore(database), one, [[{}], [{}, {}], [{}]])
  await storeCommits(createCommitsStore(database), other, [[{}]])
  await mine(one, [0, 1], 100)
  await mine(other, [0], 100)
  const inBlock = [
    [other.notary, 1, 100],
    [one.notary, 3, 100],
    [one.notary, 1, 100],
  ]
  const placesOf = (found: Awaited<ReturnType<AnchoredHeadsStore['listByBlock']>>) =>
    found.map(({ notary, size, anchor }) => [notary, size, anchor.blockNumber])
  expect(placesOf(await heads.listByBlock(100, 10))).toEqual(inBlock)
  expect(placesOf(await heads.listByHash(BLOCK_HASH, 10))).toEqual(inBlock)
  expect(await heads.listByBlock(100, 2)).toHaveLength(2)
  const [, , last] = stored
  expect(await heads.listByHash(last?.anchor.hash.slice(2) ?? '', 10)).toMatchObject([
    { notary: one.notary, size: 4, anchor: { txHash: last?.anchor.hash, state: 'pending' } },
  ])
  expect(await heads.listByBlock(101, 10)).toEqual([])
  expect(await heads.listByHash('00'.repeat(32), 10)).toEqual([])
})

it('a search by block reads no anchor of another block, in a database without statistics', async () => {
  const own = await source.open()
  const log = makeLog()
  const { state } = await storeCommits(createCommitsStore(own), log, [])
  await sql`
    insert into anchors (relayer, nonce, tx_hash, raw, log_id, size, root, signature, state, block_number,
      block_hash, created_at)
    select ${log.relayer}, n, sha256(n::text::bytea), 'raw', ${state.logId}, n, sha256('root'),
      ${Buffer.alloc(65)}, 'confirmed', n, sha256(n::text::bytea), 0
    from generate_series(1, 3000) n`.execute(own.queries)
  await own.queries.transaction().execute(async (queries) => {
    const found = createAnchoredHeadsStore({ queries })
    const before = await countReads(queries)
    const [head] = await found.listByBlock(1_234, 20)
    expect(head).toMatchObject({ size: 1_234 })
    expect(await found.listByHash(head?.anchor.blockHash?.slice(2) ?? '', 20)).toHaveLength(2)
    expect((await countReads(queries)) - before).toBeLessThan(30)
  })
})

/** Rows of anchors that this transaction has read. */
async function countReads(queries: Database['queries']): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select (seq_tup_read + idx_tup_fetch)::integer as count from pg_stat_xact_user_tables
    where relname = 'anchors'`.execute(queries)
  return rows[0]?.count ?? Number.NaN
}
