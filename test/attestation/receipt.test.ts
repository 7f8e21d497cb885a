import fc from 'fast-check'
import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import type { Json } from '#attestation/json/value.ts'
import { parseReceipt } from '#attestation/receipt.ts'
import { buildRecord } from './build-record.ts'
import { type JsonPath, replaceAt, valueAt } from './mutate-json.ts'

const receipt = valueAt(buildRecord().stored, ['receipt'])
const HASH = '0a'.repeat(32)

it('parseReceipt gives the receipt with exactly what it had', () => {
  expect(parseReceipt(receipt)).toEqual(receipt)
})

it.each<[string, JsonPath, Json]>([
  [
    'a provider over plain http',
    ['provider'],
    { name: 'demo', origin: 'http://127.0.0.1:1', tls: null },
  ],
  ['no returned model', ['model', 'returned'], null],
  ['a caller who went away', ['outcome'], 'client_disconnected'],
  ['a provider that broke off', ['outcome'], 'upstream_error'],
  ['the first leaf', ['index'], 0],
  ['a clock that was set back', ['finished_at'], 1],
  ['a stream', ['stream_hash'], HASH],
  ['a second attempt', ['attempt'], 2],
  ['an encrypted call', ['encrypted'], true],
  ["a caller's credential", ['credential'], { from: 'caller', demanded: true }],
  ['no credential', ['credential'], { from: 'none', demanded: false }],
])('parseReceipt accepts a valid receipt: %s', (_, path, value) => {
  const changed = replaceAt(receipt, path, value)
  expect(parseReceipt(changed)).toEqual(changed)
})

it.each<[string, JsonPath, Json]>([
  ['another version', ['version'], 2],
  ['an attempt of 0', ['attempt'], 0],
  ['an attempt as text', ['attempt'], '1'],
  ['a malformed stream hash', ['stream_hash'], 'abc'],
  ['encrypted as a number', ['encrypted'], 0],
  ['a credential of somebody else', ['credential', 'from'], 'gateway'],
  ['demanded as text', ['credential', 'demanded'], 'true'],
  ['an unknown dialect', ['dialect'], 'completions'],
  ['a header in chat', ['headers'], { accept: '*/*' }],
  ['headers in an array', ['headers'], []],
  ['a version as text', ['version'], '1'],
  ['a negative index', ['index'], -1],
  ['a fractional index', ['index'], 0.5],
  ['an index that a double does not hold', ['index'], 2 ** 53],
  ['an index as text', ['index'], '17'],
  ['a hash with 0x', ['hash'], `0x${HASH}`],
  ['a hash in upper case', ['request_hash'], HASH.toUpperCase()],
  ['a short hash', ['response_hash'], HASH.slice(2)],
  ['a hash with a line end', ['forwarded_hash'], `${HASH}\n`],
  ['a hash that is null', ['received_hash'], null],
  ['an unknown outcome', ['outcome'], 'lost'],
  ['a time in fractions', ['started_at'], 1.5],
  ['a time before 1970', ['finished_at'], -1],
  ['no TLS evidence of an https provider', ['provider', 'tls'], null],
  ['TLS evidence of an http provider', ['provider', 'origin'], 'http://provider.example'],
  ['an origin of another scheme', ['provider', 'origin'], 'ftp://provider.example'],
  ['a malformed key hash', ['provider', 'tls', 'spki_sha256'], 'abc'],
  ['a subject that is no text', ['provider', 'tls', 'subject'], {}],
  ['a model that is no text', ['model', 'requested'], null],
  ['members in an array', ['model'], ['a', 'b']],
])('parseReceipt names the member that it refuses: %s', (_, path, value) => {
  const code = faultOf(replaceAt(receipt, path, value))
  expect(code).toMatch(/^invalid_receipt: expected /)
  expect(code).toContain(path.includes('provider') ? 'provider' : String(path[0]))
})

it('parseReceipt throws only FormatError on any JSON value', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      expect(faultOf(value as Json)).toMatch(/^invalid_receipt/)
    }),
  )
})

function faultOf(value: Json): string {
  try {
    parseReceipt(value)
  } catch (error) {
    if (error instanceof FormatError) return `${error.code}: ${error.message}`
    throw error
  }
  return 'accepted'
}
