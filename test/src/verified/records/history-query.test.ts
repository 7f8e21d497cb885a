import { expect, it } from 'vitest'
import { ValidationError } from '#src/api/errors.ts'
import { validate } from '#src/api/validation.ts'
import { hashParameter, historyQuery } from '#src/verified/records/history-routes.ts'

const id = '6f1c8f0e-6f0b-4a55-9b0e-3f7a1f0f3a11'
const hash = 'ab'.repeat(32)
const NONE = {
  model: null,
  provider: null,
  outcome: null,
  since: null,
  until: null,
  encrypted: null,
}
const UNSET = { limit: 100, cursor: null, filter: 'mine', q: null, ...NONE }

function faultsOf(run: () => unknown) {
  try {
    run()
  } catch (error) {
    if (error instanceof ValidationError)
      return error.detail.map(({ loc, type }) => [loc.join('.'), type])
    throw error
  }
  return []
}

it.each([
  [{}, {}],
  [
    { cursor: id.toUpperCase(), filter: 'all', other: 'x' },
    { cursor: id, filter: 'all' },
  ],
  [
    { limit: '1', q: 'one\r\n\ttwo' },
    { limit: 1, q: 'one\r\n\ttwo' },
  ],
  [{ limit: '1000' }, { limit: 1000 }],
])('the query of the history %j is read as %j, the rest unset', (parameters, expected) => {
  expect(validate('query', historyQuery, parameters)).toEqual({ ...UNSET, ...expected })
})

it.each([
  [{ limit: '0' }, 'query.limit', 'greater_than_equal'],
  [{ limit: '1001' }, 'query.limit', 'less_than_equal'],
  [{ limit: '1.5' }, 'query.limit', 'int_parsing'],
  [{ limit: '' }, 'query.limit', 'int_parsing'],
  [{ limit: '1e2' }, 'query.limit', 'int_parsing'],
  [{ limit: ['1', '2'] }, 'query.limit', 'string_type'],
  [{ cursor: `${id}\n` }, 'query.cursor', 'uuid_parsing'],
  [{ filter: 'ours' }, 'query.filter', 'literal_error'],
  [{ outcome: 'done' }, 'query.outcome', 'literal_error'],
  [{ encrypted: '1' }, 'query.encrypted', 'literal_error'],
  [{ since: '-1' }, 'query.since', 'greater_than_equal'],
  [{ q: '' }, 'query.q', 'string_too_short'],
  [{ q: 'x'.repeat(201) }, 'query.q', 'string_too_long'],
  [{ q: 'a\0b' }, 'query.q', 'string_pattern_mismatch'],
  [{ model: 'a\nb' }, 'query.model', 'string_pattern_mismatch'],
])('the query of the history refuses %j', (parameters, loc, type) => {
  expect(faultsOf(() => validate('query', historyQuery, parameters))).toEqual([[loc, type]])
})

it.each([hash, `0x${hash}`, hash.toUpperCase()])('the hash of a completion may be %s', (text) => {
  expect(validate('path', hashParameter, { hash: text })).toEqual({ hash })
})

it.each(['', hash.slice(2), `${hash}00`, `x${hash.slice(1)}`, `${hash}\n`])(
  'the hash of a completion may not be %j',
  (text) =>
    expect(faultsOf(() => validate('path', hashParameter, { hash: text }))).toEqual([
      ['path.hash', 'string_pattern_mismatch'],
    ]),
)
