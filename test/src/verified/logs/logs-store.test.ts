import fc from 'fast-check'
import { sql } from 'kysely'
import { beforeAll, expect, it } from 'vitest'
import { encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { appendLeaves, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyConsistency, verifyInclusion } from '#attestation/merkle/verify.ts'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import type { Database } from '#src/storage/database.ts'
import {
  type Commit,
  createCommitsStore,
  type NewRecord,
} from '#src/verified/commits/commits-store.ts'
import { createLogsStore, type LogsStore } from '#src/verified/logs/logs-store.ts'
import { useDatabases } from '../../../support/databases.ts'
import {
  CREATED_AT,
  makeLog,
  minedAt,
  OPENING,
  randomAddress,
  storeCommits,
  type TestLog,
} from '../commits/build-commit.ts'

const source = await useDatabases()
const database = await source.open()
const logs = createLogsStore(database)

const store = (log: TestLog, sizes: readonly number[]) =>
  storeCommits(
    createCommitsStore(database),
    log,
    sizes.map((count): readonly Partial<NewRecord>[] => Array(count).fill({})),
  )
const mine = (log: TestLog, nonces: readonly number[]) =>
  createAnchorsStore(database).markMined(
    log.relayer,
    nonces.map((nonce) => minedAt(nonce, 100 + nonce)),
  )

const SIZE = 3_333
let logId: number
let leaves: readonly Uint8Array[]
const roots: Uint8Array[] = [rootOf(emptyEdge)]
const rootAt = (size: number) => roots[size] ?? new Uint8Array()

beforeAll(async () => {
  const { state, stored } = await store(makeLog(), [1, 1_111, 1_110, 1_111])
  logId = state.logId
  leaves = stored.flatMap(leavesOf)
  let edge = emptyEdge
  for (const leaf of leaves) {
    edge = appendLeaves(edge, [leaf]).edge
    roots.push(rootOf(edge))
  }
  expect(roots).toHaveLength(SIZE + 1)
}, 60_000)

it('the store of logs gives inclusion proofs that verify, of every leaf at every size', async () => {
  const places = fc
    .integer({ min: 1, max: SIZE })
    .chain((size) => fc.tuple(fc.constant(size), fc.integer({ min: 0, max: size - 1 })))
  await fc.assert(
    fc.asyncProperty(places, async ([size, index]) => {
      const { leafHash, path, root } = await logs.readInclusion({ logId, index, size })
      expect(encodeHex(leafHash)).toBe(encodeHex(leaves[index] ?? new Uint8Array()))
      expect(encodeHex(root)).toBe(encodeHex(rootAt(size)))
      verifyInclusion({ leafHash, index, path, head: { size, root } })
    }),
    { numRuns: 60 },
  )
})

it('the store of logs gives consistency proofs that verify, between all sizes', async () => {
  const sizes = fc.tuple(fc.integer({ min: 0, max: SIZE }), fc.integer({ min: 0, max: SIZE }))
  await fc.assert(
    fc.asyncProperty(sizes, async ([one, other]) => {
      const [from, to] = [Math.min(one, other), Math.max(one, other)]
      const path = await logs.readConsistency({ logId, from, to })
      const [first, second] = [from, to].map((size) => ({ size, root: rootAt(size) }))
      if (first && second) verifyConsistency({ first, second, path })
    }),
    { numRuns: 60 },
  )
})

it('the store of logs gives the leaves of any range, in order', async () => {
  for (const [start, end] of [
    [0, SIZE],
    [1_100, 1_120],
    [SIZE - 1, SIZE],
    [7, 7],
  ] as const)
    expect((await logs.listLeaves({ logId, start, end })).map(encodeHex)).toEqual(
      leaves.slice(start, end).map(encodeHex),
    )
})

it('the store of logs gives no proof over nodes that are not stored', async () => {
  await expect(logs.readInclusion({ logId, index: 0, size: SIZE + 1 })).rejects.toThrow(
    'stored node',
  )
  await expect(logs.readConsistency({ logId, from: 1, to: SIZE + 1 })).rejects.toThrow(
    'stored node',
  )
  await expect(logs.listLeaves({ logId, start: SIZE - 1, end: SIZE + 1 })).rejects.toThrow(
    'stored leaves',
  )
})

it('a log is described: size, root, newest mined head, newest document', async () => {
  const log = makeLog()
  const { stored } = await store(log, [2, 1, 3])
  const last = stored.at(-1)
  const found = await logs.find(log.notary)
  expect(found).toMatchObject({
    root: sameBytes(last?.head.root),
    notary: log.notary,
    publicKey: log.publicKey,
    chainId: OPENING.domain.chainId,
    contract: OPENING.domain.contract,
    bootConfiguration: OPENING.bootConfiguration,
    createdAt: CREATED_AT,
    size: 6,
    head: null,
    attestationDigest: last?.records[0]?.document,
  })
  await mine(log, [0, 1])
  await createAnchorsStore(database).markConfirmed(log.relayer, 0)
  expect((await logs.find(log.notary))?.head).toMatchObject({
    size: 3,
    root: sameBytes(stored[1]?.head.root),
    signature: sameBytes(stored[1]?.head.signature),
    createdAt: CREATED_AT,
    anchor: {
      txHash: stored[1]?.anchor.hash,
      replaces: [],
      state: 'mined',
      blockNumber: 101,
      blockHash: `0x${'bb'.repeat(32)}`,
    },
  })
})

it('a log without leaves is described', async () => {
  const log = makeLog()
  await store(log, [])
  expect(await logs.find(log.notary)).toMatchObject({
    size: 0,
    head: null,
    attestationDigest: null,
  })
  expect(await logs.find(randomAddress())).toBeNull()
})

it('logs are listed newest first, in pages', async () => {
  const own = await source.open()
  const listed = createLogsStore(own)
  const notaries: string[] = []
  for (let count = 0; count < 5; count++) {
    const log = makeLog()
    await storeCommits(createCommitsStore(own), log, [[{}]])
    notaries.unshift(log.notary)
  }
  const page = async (limit: number, cursor: string | null) => {
    const found = await listed.list({ limit, cursor })
    if (found === 'unknown_cursor') throw new Error(found)
    return [found.logs.map(({ notary }) => notary), found.hasMore]
  }
  expect(await page(2, null)).toEqual([notaries.slice(0, 2), true])
  expect(await page(2, notaries[1] ?? '')).toEqual([notaries.slice(2, 4), true])
  expect(await page(2, notaries[3] ?? '')).toEqual([notaries.slice(4), false])
  expect(await page(5, null)).toEqual([notaries, false])
  expect(await listed.list({ limit: 2, cursor: randomAddress() })).toBe('unknown_cursor')
})

it('heads are listed by size, of one log, whatever became of their anchors', async () => {
  const log = makeLog()
  const { state, stored } = await store(log, [2, 1, 3, 1])
  await store(makeLog(), [1])
  await mine(log, [1])
  const { logId } = state
  const all = await logs.listHeads({ logId, afterSize: null, limit: 10 })
  expect(all.map(({ size, root }) => [size, encodeHex(root)])).toEqual(
    stored.map(({ head }) => [head.size, encodeHex(head.root)]),
  )
  expect(all.map(({ anchor }) => [anchor.txHash, anchor.state])).toEqual(
    stored.map(({ anchor }, at) => [anchor.hash, at === 1 ? 'mined' : 'pending']),
  )
  const sizes = async (afterSize: number | null, limit: number) =>
    (await logs.listHeads({ logId, afterSize, limit })).map(({ size }) => size)
  expect(await sizes(null, 2)).toEqual([2, 3])
  expect(await sizes(3, 2)).toEqual([6, 7])
  expect(await sizes(4, 1)).toEqual([6])
  expect(await sizes(7, 2)).toEqual([])
  const newest = await logs.listHeadsBefore({ logId, beforeSize: null, limit: 10 })
  expect(newest).toEqual(all.toReversed())
  const sizesBefore = async (beforeSize: number, limit: number) =>
    (await logs.listHeadsBefore({ logId, beforeSize, limit })).map(({ size }) => size)
  expect(await sizesBefore(7, 2)).toEqual([6, 3])
  expect(await sizesBefore(3, 2)).toEqual([2])
  expect(await sizesBefore(0, 2)).toEqual([])
})

it('no more heads are read than are given, in a database without statistics', async () => {
  const COUNT = 3_000
  const own = await source.open()
  const log = makeLog()
  const { state } = await storeCommits(createCommitsStore(own), log, [])
  const { logId } = state
  await sql`
    insert into anchors (relayer, nonce, tx_hash, raw, log_id, size, root, signature, state, created_at)
    select ${log.relayer}, n, sha256(n::text::bytea), 'raw', ${logId}, n, sha256('root'), ${Buffer.alloc(65)},
      'pending', 0
    from generate_series(1, ${COUNT}::integer) n`.execute(own.queries)
  const count = (list: (logs: LogsStore) => ReturnType<LogsStore['listHeads']>) =>
    own.queries.transaction().execute(async (queries) => {
      const before = await countReads(queries)
      const sizes = (await list(createLogsStore({ queries }))).map(({ size }) => size)
      return { sizes, read: (await countReads(queries)) - before }
    })
  const read = (afterSize: number | null, limit: number) =>
    count((logs) => logs.listHeads({ logId, afterSize, limit }))
  expect(await read(null, 3)).toEqual({ sizes: [1, 2, 3], read: 3 })
  const thousand = Array.from({ length: 1_000 }, (_, at) => 101 + at)
  expect(await read(100, 1_000)).toEqual({ sizes: thousand, read: 1_000 })
  expect(await read(COUNT - 2, 50)).toEqual({ sizes: [COUNT - 1, COUNT], read: 2 })
  expect(
    await count((logs) => logs.listHeadsBefore({ logId, beforeSize: null, limit: 2 })),
  ).toEqual({ sizes: [COUNT, COUNT - 1], read: 2 })
})

/**
 * Rows of anchors that this connection has read and not reported yet: within a transaction it only
 * grows.
 */
async function countReads(queries: Database['queries']): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select (seq_tup_read + idx_tup_fetch)::integer as count from pg_stat_xact_user_tables
    where relname = 'anchors'`.execute(queries)
  return rows[0]?.count ?? Number.NaN
}

function leavesOf({ records }: Commit): readonly Uint8Array[] {
  return records.map(({ receipt }) => hashLeaf(encodeUtf8(receipt)))
}

const sameBytes = (expected: Uint8Array = new Uint8Array()) =>
  expect.toSatisfy((actual: Uint8Array) => Buffer.compare(actual, expected) === 0)
