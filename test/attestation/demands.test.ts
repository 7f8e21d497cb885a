import { expect, it } from 'vitest'
import { demandsOf } from '#attestation/demands.ts'
import type { Json } from '#attestation/json/value.ts'

const ID = '5e'.repeat(16)
const HASH = 'ab'.repeat(32)
const demandsIn = (session: Json) => demandsOf({ model: 'm', affidavit: { session } })

it.each([
  ['the first call', { id: ID, n: 0, previous: null }],
  ['a later call', { id: '5e'.repeat(32), n: 7, previous: HASH }],
  ['the last call', { id: ID, n: 7, previous: HASH, last: true }],
  ['the only call', { id: ID, n: 0, previous: null, last: true }],
])('the place of %s is read as it is', (_, session) => {
  expect(demandsIn(session)).toEqual({ session })
})

it.each<[string, Json]>([
  ['a text as its place', 'session'],
  ['null as its place', null],
  ['no id', { n: 0, previous: null }],
  ['a short id', { id: '5e'.repeat(15), n: 0, previous: null }],
  ['a long id', { id: '5e'.repeat(33), n: 0, previous: null }],
  ['an id of half a byte', { id: `${ID}5`, n: 0, previous: null }],
  ['an id in upper case', { id: '5E'.repeat(16), n: 0, previous: null }],
  ['an id with a line feed', { id: `${ID}\n`, n: 0, previous: null }],
  ['a negative number', { id: ID, n: -1, previous: HASH }],
  ['a number as a text', { id: ID, n: '1', previous: HASH }],
  ['a fraction', { id: ID, n: 0.5, previous: HASH }],
  ['a first call with a call before it', { id: ID, n: 0, previous: HASH }],
  ['a later call without a call before it', { id: ID, n: 1, previous: null }],
  ['no member previous', { id: ID, n: 0 }],
  ['a short hash', { id: ID, n: 1, previous: HASH.slice(2) }],
  ['a hash with a prefix', { id: ID, n: 1, previous: `0x${HASH}` }],
  ['an end that is false', { id: ID, n: 0, previous: null, last: false }],
  ['an end that is null', { id: ID, n: 0, previous: null, last: null }],
  ['an unknown member', { id: ID, n: 0, previous: null, parent: null }],
])('a session with %s is refused', (_, session) => {
  expect(() => demandsIn(session)).toThrow(expect.objectContaining({ code: 'invalid_demand' }))
})

it('an unknown demand beside a session is refused', () => {
  const affidavit = { session: { id: ID, n: 0, previous: null }, sesion: 1 }
  expect(() => demandsOf({ affidavit })).toThrow(
    expect.objectContaining({ code: 'invalid_demand' }),
  )
})
