import { describe, expect, it } from 'vitest'
import { parseOrigin, parseProviderTable } from '#enclave/providers/parse-table.ts'

const entry = {
  name: 'a',
  origin: 'https://a.example',
  path: '/v1/chat/completions',
  models: ['a-*'],
}
const parse = (table: unknown) => parseProviderTable(Buffer.from(JSON.stringify(table)))
const invalidTable = expect.objectContaining({ code: 'invalid_provider_table' })

describe('parseProviderTable', () => {
  it('parseProviderTable keeps keys and the endpoints of other dialects', () => {
    const whole = {
      ...entry,
      keys: ['a'.repeat(64)],
      endpoints: {
        responses: { path: '/v1/responses' },
        messages: { path: '/v1/messages', credential: 'x-api-key' },
      },
    }
    expect(parseProviderTable(Buffer.from(JSON.stringify([whole])))).toEqual([whole])
  })

  it.each([
    ['no entry', []],
    ['an entry that is no object', [[]]],
    ['a name twice', [entry, { ...entry, origin: 'https://b.example' }]],
    ['an unknown member', [{ ...entry, headers: {} }]],
    ['a path that is relative', [{ ...entry, path: 'v1' }]],
    ['a path with a line break', [{ ...entry, path: '/v1\r\n' }]],
    ['no key', [{ ...entry, keys: [] }]],
    ['a key in capitals', [{ ...entry, keys: ['A'.repeat(64)] }]],
    ['a key with plain http', [{ ...entry, origin: 'http://localhost', keys: ['a'.repeat(64)] }]],
    ['an endpoint of chat', [{ ...entry, endpoints: { chat: { path: '/' } } }]],
    ['an endpoint without a path', [{ ...entry, endpoints: { messages: {} } }]],
    ['another credential', [{ ...entry, endpoints: { messages: { path: '/', credential: 'x' } } }]],
    ['a pattern over the limit', [{ ...entry, models: ['a'.repeat(257)] }]],
    ['plain http to another machine', [{ ...entry, origin: 'http://a.example' }]],
  ])('parseProviderTable refuses a table with %s', (_, table) => {
    expect(() => parse(table)).toThrow(invalidTable)
  })

  it('parseProviderTable refuses a member that stands twice', () => {
    expect(() => parseProviderTable(Buffer.from('[{"name":"a","name":"b"}]'))).toThrow(
      expect.objectContaining({ code: 'duplicate_key' }),
    )
  })
})

describe('parseOrigin', () => {
  it.each([
    'https://a.example',
    'https://a.example:444',
    'http://127.0.0.1:8080',
    'http://[::1]:8080',
    'http://localhost:1',
  ])('parseOrigin takes the origin %s', (origin) => {
    expect(parseOrigin(origin)).toBe(origin)
  })

  it.each([
    'https://a.example/',
    'https://user:secret@a.example',
    'https://A.example',
    'https://a.example:443',
    'ftp://a.example',
    'http://10.0.0.1',
    'http://169.254.169.254',
    'http://127.0.0.1.example',
    'http://localhost.example',
    'http://0.0.0.0:1',
    'a.example',
  ])('parseOrigin refuses the origin %s', (origin) => {
    expect(() => parseOrigin(origin)).toThrow(invalidTable)
  })
})
