import { expect, it } from 'vitest'
import { createHistory } from '#src/verified/records/history.ts'
import { FIRST_SLICE, PAGE_LENGTH_MAX, SLICE_MAX } from '#src/verified/records/record-text.ts'
import type { RecordsStore, StoredRecord } from '#src/verified/records/records-store.ts'

type List = RecordsStore['list']

const record = (index: number, length: number): StoredRecord => ({
  id: `id-${index}`,
  notary: '0x',
  index,
  hash: '00',
  request: '{"messages":[]}',
  response: `{"text":"${'x'.repeat(length)}"}`,
  receipt: '{}',
  publicKey: '0x',
  signature: '0x',
  txHash: '0x',
  reanchored: [],
  attestation: '',
  accountId: null,
  requestId: null,
  createdAt: 1,
  outcome: 'complete',
  usage: null,
  logProof: { size: 1, root: '00', signature: '0x', path: [], chainId: 1, contract: '0x' },
})

/**
 * A store of `count` records whose responses have `length` characters; notes how many were asked
 * for at once.
 */
function storeOf(count: number, length: number) {
  const limits: number[] = []
  const list: List = async ({ limit, cursor }) => {
    limits.push(limit)
    const start = cursor === null ? 0 : Number(cursor.slice('id-'.length)) + 1
    const end = Math.min(count, start + limit)
    const records = Array.from({ length: end - start }, (_, offset) =>
      record(start + offset, length),
    )
    return { records, cursor: end < count ? `id-${end - 1}` : null }
  }
  return {
    limits,
    history: createHistory({
      records: { list, findByHash: async () => null },
      eraseRecords: async () => ({ found: 0, erased: 0 }),
      isOpen: true,
    }),
  }
}

const query = { viewer: { accountId: 'a', seesAll: false }, filter: 'all', cursor: null } as const

async function readAll(history: ReturnType<typeof storeOf>['history'], limit: number) {
  const ids: string[] = []
  let cursor: string | null = null
  let pages = 0
  do {
    const text: string = await history.list({ ...query, limit, cursor })
    expect(text.length).toBeLessThan(PAGE_LENGTH_MAX + 1000)
    const page: { completions: { id: string }[]; cursor: string | null } = JSON.parse(text)
    ids.push(...page.completions.map(({ id }) => id))
    cursor = page.cursor
    pages++
  } while (cursor !== null)
  return { ids, pages }
}

it.each([1, 7, FIRST_SLICE, FIRST_SLICE + 1, 100, 1000])(
  'pages of %i give each record of the history once',
  async (limit) => {
    const { history } = storeOf(523, 10)
    const { ids, pages } = await readAll(history, limit)
    expect(ids).toEqual(Array.from({ length: 523 }, (_, index) => `id-${index}`))
    expect(pages).toBe(Math.ceil(523 / limit))
  },
)

it('a page ends early rather than hold more than it may, and the next goes on where it ended', async () => {
  const { history, limits } = storeOf(12, PAGE_LENGTH_MAX / 6)
  const { ids, pages } = await readAll(history, 1000)
  expect(ids).toHaveLength(12)
  expect(pages).toBe(3)
  expect(Math.max(...limits)).toBe(FIRST_SLICE)
})

it('small records are read in few queries', async () => {
  const { history, limits } = storeOf(2000, 10)
  await history.list({ ...query, limit: 1000 })
  expect(limits.length).toBeLessThan(7)
  expect(Math.max(...limits)).toBe(SLICE_MAX)
})
