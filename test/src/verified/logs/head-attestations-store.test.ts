import { randomBytes } from 'node:crypto'
import { expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { appendLeaves, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import {
  createHeadAttestationsStore,
  type StoredHeadAttestation,
} from '#src/verified/logs/head-attestations-store.ts'
import { useDatabase } from '../../../support/databases.ts'
import { CREATED_AT, makeLog, openLog, storeCommits } from '../commits/build-commit.ts'

let nextLogId = 1_000_000

function make(parts: Partial<StoredHeadAttestation> = {}): StoredHeadAttestation {
  return {
    size: 5,
    root: new Uint8Array(randomBytes(32)),
    blockNumber: 17,
    blockHash: new Uint8Array(randomBytes(32)),
    document: new Uint8Array(randomBytes(5000)),
    createdAt: CREATED_AT,
    ...parts,
  }
}

/** The drivers' bytes differ in class. */
function plain(attestation: StoredHeadAttestation): StoredHeadAttestation {
  const { root, blockHash, document } = attestation
  return {
    ...attestation,
    root: new Uint8Array(root),
    blockHash: new Uint8Array(blockHash),
    document: new Uint8Array(document),
  }
}

const database = await useDatabase()
const store = createHeadAttestationsStore(database)

const everything = async (logId: number) =>
  (await store.listHeadAttestations({ logId, afterSize: null, throughSize: null })).map(plain)
const findRoot = async (notary: string, size: number) => {
  const found = await store.findRoot({ notary, size })
  return found && { ...found, root: new Uint8Array(found.root) }
}

it('the store keeps of each size the first and the newest attestation', async () => {
  const logId = nextLogId++
  const all = Array.from({ length: 5 }, (_, at) => make({ createdAt: CREATED_AT + at }))
  for (const attestation of all) await store.keep({ logId, ...attestation })
  const other = make({ size: 0 })
  await store.keep({ logId, ...other })
  expect(await everything(logId)).toEqual([other, all[0], all[4]])
})

it('the documents of a range are weighed by size, without those of other sizes and logs', async () => {
  const logId = nextLogId++
  for (const [size, bytes] of [
    [0, 7],
    [3, 5_000],
    [3, 6_000],
    [2 ** 50, 9_000],
  ] as const)
    await store.keep({ logId, ...make({ size, document: new Uint8Array(randomBytes(bytes)) }) })
  await store.keep({ logId: nextLogId++, ...make({ size: 3 }) })
  const weigh = (afterSize: number | null, throughSize: number | null) =>
    store.weighHeadAttestations({ logId, afterSize, throughSize })
  expect(await weigh(null, null)).toEqual([
    { size: 0, bytes: 7 },
    { size: 3, bytes: 11_000 },
    { size: 2 ** 50, bytes: 9_000 },
  ])
  expect(await weigh(0, 3)).toEqual([{ size: 3, bytes: 11_000 }])
  expect(await weigh(3, 2 ** 49)).toEqual([])
})

it('a newer attestation of the same second is taken, and none that is older than the newest', async () => {
  const logId = nextLogId++
  const [first, newest, same, older] = [0, 9, 9, 5].map((at) =>
    make({ createdAt: CREATED_AT + at }),
  )
  for (const attestation of [first, newest, same, older])
    if (attestation !== undefined) await store.keep({ logId, ...attestation })
  expect(await everything(logId)).toEqual([first, same])
})

it('two attestations of a size are kept when many are kept at once, the last of them the newest', async () => {
  const logId = nextLogId++
  const all = Array.from({ length: 40 }, (_, at) => make({ createdAt: CREATED_AT + at }))
  await Promise.all(all.toReversed().map((attestation) => store.keep({ logId, ...attestation })))
  const kept = await everything(logId)
  expect(kept).toHaveLength(2)
  for (const attestation of kept) expect(all).toContainEqual(attestation)
  // Unless it was the first of all to come, in which case the second newest is.
  expect(kept.map(({ createdAt }) => createdAt)).toContain(CREATED_AT + 39)
})

it('the store gives the attestations of a range, by size, and of one log alone', async () => {
  const logId = nextLogId++
  for (const size of [7, 0, 3, 5]) await store.keep({ logId, ...make({ size }) })
  await store.keep({ logId: nextLogId++, ...make({ size: 4 }) })
  const sizesOf = async (afterSize: number | null, throughSize: number | null) =>
    (await store.listHeadAttestations({ logId, afterSize, throughSize })).map(({ size }) => size)
  expect(await sizesOf(null, null)).toEqual([0, 3, 5, 7])
  expect(await sizesOf(null, 3)).toEqual([0, 3])
  expect(await sizesOf(0, 5)).toEqual([3, 5])
  expect(await sizesOf(3, null)).toEqual([5, 7])
  expect(await sizesOf(7, null)).toEqual([])
})

it('the root of every size that is committed is found, and none above or of an unknown log', async () => {
  const log = makeLog()
  const { notary } = log
  expect(await findRoot(notary, 0)).toBeNull()
  const commits = createCommitsStore(database)
  const { logId } = await openLog(commits, log)
  const empty = { logId, root: rootOf(emptyEdge) }
  expect(await findRoot(notary, 0)).toEqual(empty)
  const { stored } = await storeCommits(commits, log, [Array(5).fill({}), [{}], Array(7).fill({})])
  const leaves = stored.flatMap(({ records }) =>
    records.map(({ receipt }) => hashLeaf(encodeUtf8(receipt))),
  )
  for (let size = 0; size <= 13; size++) {
    const { edge } = appendLeaves(emptyEdge, leaves.slice(0, size))
    expect(await findRoot(notary, size)).toEqual({ logId, root: rootOf(edge) })
  }
  expect(await findRoot(notary, 14)).toBeNull()
})
