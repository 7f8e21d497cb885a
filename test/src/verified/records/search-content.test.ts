import { expect, it } from 'vitest'
import { NO_FILTERS, type StoredRecord } from '#src/verified/records/records-store.ts'
import {
  createContentSearch,
  SEARCHED_LENGTH_MAX,
  SEARCHED_RECORDS_MAX,
} from '#src/verified/records/search-content.ts'

/** Records, newest first, as a store lists them; every one of them says `text`. */
function listOf(texts: readonly string[]) {
  const all = texts.map((content, at) => ({
    id: String(at),
    request: JSON.stringify({ messages: [{ role: 'user', content }], user: 'needle' }),
    response: JSON.stringify({ choices: [] }),
    receipt: JSON.stringify({ dialect: 'chat' }),
  })) as unknown as readonly StoredRecord[]
  let looked = 0
  return {
    looked: () => looked,
    async list({ limit, cursor }: { readonly limit: number; readonly cursor: string | null }) {
      const start = cursor === null ? 0 : Number(cursor) + 1
      const records = all.slice(start, start + limit)
      looked += records.length
      const isEnd = start + limit >= all.length
      return { records, cursor: isEnd ? null : (records.at(-1)?.id ?? null) }
    },
  }
}

/** Ids of all that is found, page by page, and how many pages there were. */
async function walk(texts: readonly string[], limit = 20) {
  const records = listOf(texts)
  const found: string[] = []
  let cursor: string | null = null
  let pages = 0
  do {
    const before = records.looked()
    // A page has a search of its own.
    const search = createContentSearch(records, {
      accountId: 'a',
      filters: NO_FILTERS,
      text: 'Needle',
    })
    const page = await search(cursor, limit)
    if (page === 'unknown_cursor') throw new Error('expected a page')
    expect(records.looked() - before).toBeLessThanOrEqual(SEARCHED_RECORDS_MAX + limit)
    found.push(...page.records.map(({ id }) => id))
    cursor = page.hasMore ? (page.endsAt ?? page.records.at(-1)?.id ?? null) : null
    pages++
  } while (cursor !== null)
  return { found, pages }
}

it('a search of contents ends a page when enough records were looked into, and the next goes on there', async () => {
  const count = 2 * SEARCHED_RECORDS_MAX + 7
  const texts = Array.from({ length: count }, (_, at) => (at % 499 === 3 ? 'a NEEDLE' : 'hay'))
  const wanted = texts.flatMap((text, at) => (text === 'hay' ? [] : [String(at)]))
  expect(await walk(texts)).toEqual({ found: wanted, pages: 3 })
  // Where all fit, pages end at their limit.
  expect((await walk(Array(45).fill('needle'))).found).toHaveLength(45)
})

it('a search of contents ends a page when long contents were looked into', async () => {
  const long = 'x'.repeat(SEARCHED_LENGTH_MAX / 8)
  // Read ten at a time: twenty are more than one page looks into, and less than two.
  const { found, pages } = await walk([...Array(20).fill(long), 'needle'])
  expect(found).toEqual(['20'])
  expect(pages).toBe(3)
})

it('a search of contents looks into what was said, not into settings', async () => {
  expect((await walk(['hay'])).found).toEqual([])
})
