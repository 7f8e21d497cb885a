import { describe, expect, it } from 'vitest'
import { createLogs, type HeadAttestationsPort, LEAVES_MAX } from '../../../src/services/logs.ts'
import type { LogsStore, StoredHead, StoredLog } from '../../../src/stores/logs.ts'

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

const head = (size: number): StoredHead => ({
  size,
  root: new Uint8Array(32),
  signature: new Uint8Array(65),
  createdAt: 1,
  anchor: { txHash: '0x', state: 'pending', blockNumber: null, blockHash: null },
})

type Ranges = { readonly afterSize: number | null; readonly throughSize: number | null }[]

/** Logs over a store of one log with these heads; notes which attestations and how many leaves were asked for. */
function logsOf(sizes: readonly number[]) {
  const ranges: Ranges = []
  const asked: number[] = []
  const refuse = () => Promise.reject(new Error('not asked for here'))
  const logs: LogsStore = {
    find: async (notary) => (notary === NOTARY ? LOG : null),
    list: refuse,
    listHeads: async ({ afterSize, limit }) =>
      sizes
        .filter((size) => size > (afterSize ?? -1))
        .slice(0, limit)
        .map(head),
    readInclusion: refuse,
    readConsistency: refuse,
    listLeaves: async ({ start, end }) => {
      asked.push(end - start)
      return Array.from({ length: end - start }, (_, at) => Uint8Array.of((start + at) % 256))
    },
  }
  const headAttestations: HeadAttestationsPort = {
    listHeadAttestations: async ({ afterSize, throughSize }) => {
      ranges.push({ afterSize, throughSize })
      const bytes = new Uint8Array([1, 2, 3])
      return [{ size: 9, root: bytes, blockNumber: 5, blockHash: bytes, document: bytes, createdAt: 8 }]
    },
  }
  const service = createLogs({ logs, headAttestations, records: { listFrom: refuse }, isOpen: true })
  return { service, ranges, asked }
}

describe('createLogs', () => {
  it(`gives at most ${LEAVES_MAX} leaves at once, and says where it ended`, async () => {
    const { service, asked } = logsOf([])
    const ends: unknown[] = []
    for (const start of [0, LEAVES_MAX, 2 * LEAVES_MAX]) {
      const { end } = (await service.leaves(NOTARY, { start, end: null })) as { readonly end: number }
      ends.push(end)
    }
    expect(ends).toEqual([LEAVES_MAX, 2 * LEAVES_MAX, SIZE])
    expect(asked).toEqual([LEAVES_MAX, LEAVES_MAX, 5_000])
  })

  it('gives with each page of heads the attestations of its sizes: no page leaves any out', async () => {
    const { service, ranges } = logsOf([3, 8, 20])
    const pages: unknown[] = []
    for (const cursor of [null, 8]) {
      const page = (await service.heads(NOTARY, { limit: 2, cursor })) as { readonly cursor: number | null }
      pages.push(page.cursor)
    }
    expect(pages).toEqual([8, null])
    // From the first, with size 0; and to the last, also what no head covers yet.
    expect(ranges).toEqual([
      { afterSize: null, throughSize: 8 },
      { afterSize: 8, throughSize: null },
    ])
  })

  it('says an attestation as the others are said', async () => {
    const { service } = logsOf([])
    expect(await service.heads(NOTARY, { limit: 2, cursor: null })).toEqual({
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
})
