import { expect, it } from 'vitest'
import type { HeadAttestationRange } from '#src/verified/logs/head-attestations-store.ts'
import {
  createLogs,
  HEAD_PAGE_BYTES_MAX,
  type HeadOrder,
  type HeadPageSources,
  LEAVES_MAX,
  readHeadPage,
} from '#src/verified/logs/logs.ts'
import type { LogsStore, StoredHead, StoredLog } from '#src/verified/logs/logs-store.ts'

const NOTARY = `0x${'ab'.repeat(20)}`
const SIZE = 25_000

const LOG: StoredLog = {
  logId: 4,
  notary: NOTARY,
  publicKey: '0x04',
  chainId: 1,
  contract: '0x',
  bootConfiguration: '{}',
  createdAt: 1,
  size: SIZE,
  root: new Uint8Array(32),
  head: null,
  attestationDigest: null,
}

/**
 * Logs over a store of one log without heads, with one attestation; notes how many leaves were
 * asked for.
 */
function createTestLogs() {
  const asked: number[] = []
  const refuse = () => Promise.reject(new Error('not asked for here'))
  const logs: LogsStore = {
    find: async (notary) => (notary === NOTARY ? LOG : null),
    list: refuse,
    listHeads: async () => [],
    listHeadsBefore: async () => [],
    readInclusion: refuse,
    readConsistency: refuse,
    listLeaves: async ({ start, end }) => {
      asked.push(end - start)
      return Array.from({ length: end - start }, (_, at) => Uint8Array.of((start + at) % 256))
    },
  }
  const headAttestations: HeadPageSources['headAttestations'] = {
    listHeadAttestations: async () => {
      const bytes = new Uint8Array([1, 2, 3])
      return [
        { size: 9, root: bytes, blockNumber: 5, blockHash: bytes, document: bytes, createdAt: 8 },
      ]
    },
    weighHeadAttestations: async () => [{ size: 9, bytes: 3 }],
  }
  const service = createLogs({
    logs,
    headAttestations,
    bootStatements: { find: refuse },
    records: { listFrom: refuse },
    isOpen: true,
  })
  return { service, asked }
}

it(`createLogs gives at most ${LEAVES_MAX} leaves at once, and says where it ended`, async () => {
  const { service, asked } = createTestLogs()
  const ends: unknown[] = []
  for (const start of [0, LEAVES_MAX, 2 * LEAVES_MAX]) {
    const { end } = (await service.leaves(NOTARY, { start, end: null })) as {
      readonly end: number
    }
    ends.push(end)
  }
  expect(ends).toEqual([LEAVES_MAX, 2 * LEAVES_MAX, SIZE])
  expect(asked).toEqual([LEAVES_MAX, LEAVES_MAX, 5_000])
})

it('an attestation of a log is given with all its members', async () => {
  const { service } = createTestLogs()
  expect(await service.heads(NOTARY, { limit: 2, cursor: null, order: 'asc' })).toEqual({
    notary: NOTARY,
    heads: [],
    attestations: [
      {
        size: 9,
        root: '010203',
        block_number: 5,
        block_hash: '0x010203',
        created_at: 8,
        document: 'AQID',
      },
    ],
    cursor: null,
  })
})

const head = (size: number): StoredHead => ({
  size,
  root: new Uint8Array(32),
  signature: new Uint8Array(65),
  createdAt: 1,
  anchor: { replaces: [], txHash: '0x', state: 'pending', blockNumber: null, blockHash: null },
})

/** A log with heads of these sizes, and attestations of so many bytes by size. */
function sourcesOf(
  sizes: readonly number[],
  documents: readonly (readonly [size: number, bytes: number])[],
) {
  let bytesRead = 0
  const inRange = ({ afterSize, throughSize }: HeadAttestationRange) =>
    documents.filter(
      ([size]) => size > (afterSize ?? -1) && size <= (throughSize ?? Number.POSITIVE_INFINITY),
    )
  const sources = {
    logs: {
      listHeads: async ({ afterSize, limit }: { afterSize: number | null; limit: number }) =>
        sizes
          .filter((size) => size > (afterSize ?? -1))
          .slice(0, limit)
          .map(head),
      listHeadsBefore: async (query: { beforeSize: number | null; limit: number }) =>
        sizes
          .filter((size) => size < (query.beforeSize ?? Number.POSITIVE_INFINITY))
          .toReversed()
          .slice(0, query.limit)
          .map(head),
    },
    headAttestations: {
      listHeadAttestations: async (range: HeadAttestationRange) =>
        inRange(range).map(([size, bytes]) => {
          bytesRead += bytes
          const root = new Uint8Array(32)
          return {
            size,
            root,
            blockNumber: 1,
            blockHash: root,
            document: new Uint8Array(bytes),
            createdAt: 1,
          }
        }),
      weighHeadAttestations: async (range: HeadAttestationRange) => {
        const sums = new Map<number, number>()
        for (const [size, bytes] of inRange(range)) sums.set(size, (sums.get(size) ?? 0) + bytes)
        return [...sums].map(([size, bytes]) => ({ size, bytes }))
      },
    },
  }
  /** Pages up to the last: sizes of heads, and of attestations. */
  const walk = async (limit: number, bytesMax?: number, order: HeadOrder = 'asc') => {
    const pages: (readonly [readonly number[], readonly number[]])[] = []
    let cursor: number | null = null
    do {
      const query = {
        logId: 1,
        limit,
        cursor,
        order,
        ...(bytesMax === undefined ? {} : { bytesMax }),
      }
      const page = await readHeadPage(sources, query)
      pages.push([page.heads.map(({ size }) => size), page.attestations.map(({ size }) => size)])
      cursor = page.cursor
    } while (cursor !== null)
    return pages
  }
  return { walk, bytesRead: () => bytesRead }
}

it('readHeadPage gives with each page the attestations of its sizes, and on the last those beyond all heads', async () => {
  const documents = [0, 2, 3, 4, 20, 25].map((size) => [size, 10] as const)
  expect(await sourcesOf([3, 8, 20], documents).walk(2)).toEqual([
    [
      [3, 8],
      [0, 2, 3, 4],
    ],
    [[20], [20, 25]],
  ])
})

it('readHeadPage gives with each page of newest first what was attested from its last head on', async () => {
  const documents = [0, 2, 3, 4, 20, 25].map((size) => [size, 10] as const)
  const { walk } = sourcesOf([3, 8, 20], documents)
  expect(await walk(2, 1_000, 'desc')).toEqual([
    [
      [20, 8],
      [20, 25],
    ],
    [[3], [0, 2, 3, 4]],
  ])
  // Two documents fit: 25 and 20, 4 and 3; the last page takes all the rest.
  expect(await walk(10, 20, 'desc')).toEqual([
    [
      [20, 8],
      [20, 25],
    ],
    [[3], [0, 2, 3, 4]],
  ])
  expect(await walk(10, 10, 'desc')).toEqual([
    [[20], [20, 25]],
    [[8], []],
    [[3], [0, 2, 3, 4]],
  ])
  expect(await sourcesOf([], [[0, 10]]).walk(2, 1_000, 'desc')).toEqual([[[], [0]]])
})

it('readHeadPage ends a page before the head whose attestations do not fit, and goes on there', async () => {
  const documents = [1, 1, 2, 2, 3, 3, 4, 4].map((size) => [size, 10] as const)
  const { walk, bytesRead } = sourcesOf([1, 2, 3, 4], documents)
  expect(await walk(10, 40)).toEqual([
    [
      [1, 2],
      [1, 1, 2, 2],
    ],
    [
      [3, 4],
      [3, 3, 4, 4],
    ],
  ])
  expect(bytesRead()).toBe(80)
  expect(await walk(10, 39)).toEqual([1, 2, 3, 4].map((size) => [[size], [size, size]]))
})

it('readHeadPage gives one head with all it has, whatever that is: every page gets further', async () => {
  const documents = [1, 2, 3, 5].map((size) => [size, 50] as const)
  expect(await sourcesOf([3, 4, 5], documents).walk(10, 40)).toEqual([
    [[3], [1, 2, 3]],
    [[4], []],
    [[5], [5]],
  ])
})

it('readHeadPage holds some megabytes of documents, however many there are', async () => {
  const sizes = Array.from({ length: 1000 }, (_, at) => at + 1)
  const documents = sizes.flatMap((size) => [[size, 16_384] as const, [size, 16_384] as const])
  const pages = await sourcesOf(sizes, documents).walk(1000)
  expect(pages.flatMap(([heads]) => heads)).toEqual(sizes)
  expect(pages.flatMap(([, attested]) => attested)).toEqual(documents.map(([size]) => size))
  for (const [, attested] of pages)
    expect(attested.length * 16_384).toBeLessThanOrEqual(HEAD_PAGE_BYTES_MAX)
  expect(pages.length).toBe(Math.ceil((documents.length * 16_384) / HEAD_PAGE_BYTES_MAX))
})
