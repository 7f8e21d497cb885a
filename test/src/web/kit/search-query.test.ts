import { describe, expect, it } from 'vitest'
import { readSearchQuery } from '#src/web/kit/search-query.ts'

const HASH = 'ab'.repeat(32)
const NOTARY = `0x${'cd'.repeat(20)}`

describe('readSearchQuery', () => {
  it.each([
    [HASH, { kind: 'hash', text: HASH }],
    [` "0x${HASH.toUpperCase()}", `, { kind: 'hash', text: `0x${HASH}` }],
    ['1'.repeat(64), { kind: 'hash', text: '1'.repeat(64) }],
    [NOTARY, { kind: 'notary', text: NOTARY }],
    [NOTARY.slice(2).toUpperCase(), { kind: 'notary', text: NOTARY }],
    ['1'.repeat(40), { kind: 'notary', text: `0x${'1'.repeat(40)}` }],
    ['0', { kind: 'block', text: '0' }],
    ['#123', { kind: 'block', text: '123' }],
  ])('readSearchQuery takes the text %j', (typed, query) =>
    expect(readSearchQuery(typed)).toEqual(query),
  )

  it.each([
    ['', 'Enter a hash'],
    ['afd_x', 'API key'],
    ['resp_1', 'id of an answer'],
    ['1234567890123456', '15 digits'],
    ['abc', '3 hex digits'],
    [`${HASH}0`, '65 hex digits'],
    ['-1', 'Expected a hash'],
    ['a b', 'Expected a hash'],
  ])('readSearchQuery says why it refuses %j', (typed, words) =>
    expect(readSearchQuery(typed)).toEqual({
      kind: 'unfit',
      message: expect.stringContaining(words),
    }),
  )
})
