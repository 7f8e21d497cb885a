import { describe, expect, it } from 'vitest'
import type { HeadPageSources } from '../../../src/verified/head-page.ts'
import { createLogs, LEAVES_MAX } from '../../../src/verified/logs.ts'
import type { LogsStore, StoredLog } from '../../../src/verified/logs-store.ts'

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

/** Logs over a store of one log without heads, with one attestation; notes how many leaves were asked for. */
function createTestLogs() {
  const asked: number[] = []
  const refuse = () => Promise.reject(new Error('not asked for here'))
  const logs: LogsStore = {
    find: async (notary) => (notary === NOTARY ? LOG : null),
    list: refuse,
    listHeads: async () => [],
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
      return [{ size: 9, root: bytes, blockNumber: 5, blockHash: bytes, document: bytes, createdAt: 8 }]
    },
    weighHeadAttestations: async () => [{ size: 9, bytes: 3 }],
  }
  const service = createLogs({
    ...{ logs, headAttestations, bootStatements: { find: refuse } },
    ...{ records: { listFrom: refuse }, isOpen: true },
  })
  return { service, asked }
}

describe('createLogs', () => {
  it(`gives at most ${LEAVES_MAX} leaves at once, and says where it ended`, async () => {
    const { service, asked } = createTestLogs()
    const ends: unknown[] = []
    for (const start of [0, LEAVES_MAX, 2 * LEAVES_MAX]) {
      const { end } = (await service.leaves(NOTARY, { start, end: null })) as { readonly end: number }
      ends.push(end)
    }
    expect(ends).toEqual([LEAVES_MAX, 2 * LEAVES_MAX, SIZE])
    expect(asked).toEqual([LEAVES_MAX, LEAVES_MAX, 5_000])
  })

  it('says an attestation as the others are said', async () => {
    const { service } = createTestLogs()
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
