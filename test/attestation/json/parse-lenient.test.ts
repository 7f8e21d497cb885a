import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { concatBytes, encodeUtf8 } from '#attestation/bytes.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { parseLenientJson } from '#attestation/json/parse-lenient.ts'
import { JSON_DEPTH_MAX, parseExactJson } from '#attestation/json/parse-strict.ts'
import { codeOf } from '../code-of.ts'

it('parseLenientJson reads faithful JSON as JSON.parse does, from bytes and from text', () => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'binary', maxDepth: 3 }), (value) => {
      const text = JSON.stringify(value)
      expect(isDeepStrictEqual(parseLenientJson(text), JSON.parse(text))).toBe(true)
      expect(isDeepStrictEqual(parseLenientJson(encodeUtf8(text)), JSON.parse(text))).toBe(true)
    }),
    { numRuns: 80 },
  )
})

it('parseLenientJson gives only what canonical JSON represents and evidence can be read back from', () => {
  const wild = fc.constantFrom(
    '1e999',
    '-1e999',
    '12345678901234567890',
    '-0',
    '"\\ud800"',
    '{"\\udc00":1}',
    '{"a":1,"a":2}',
  )
  fc.assert(
    fc.property(fc.array(fc.oneof(wild, fc.json())), (items) => {
      const canonical = canonicalizeJson(parseLenientJson(`[${items.join(',')}]`))
      expect(canonicalizeJson(parseExactJson(encodeUtf8(canonical)))).toBe(canonical)
    }),
    { numRuns: 80 },
  )
})

it.each([
  ['1e400', Number.MAX_VALUE],
  ['-1e400', -Number.MAX_VALUE],
  ['1e308', 1e308],
  ['1e-400', 0],
  ['12345678901234567890', 12345678901234567000],
])('parseLenientJson reads the number %s as %d', (text, value) => {
  expect(parseLenientJson(text)).toBe(value)
})

it.each([
  ['an escape', '{"a":"x\\ud83dy"}', { a: 'x\ufffdy' }],
  ['a nested item', '[1,[{"a":"\\udc00"}],"b"]', [1, [{ a: '\ufffd' }], 'b']],
  ['a name', '{"b":1,"\\ud800":2,"c":3}', { b: 1, '\ufffd': 2, c: 3 }],
  ['raw text', '"a\ud800"', 'a\ufffd'],
])('parseLenientJson replaces a lone surrogate in %s', (_, text, value) => {
  expect(parseLenientJson(text)).toEqual(value)
})

it('the last of several members with one name wins, even when names become one by replacement', () => {
  expect(parseLenientJson('{"a":1,"a":2}')).toEqual({ a: 2 })
  expect(parseLenientJson('{"\\ud800":1,"\\ufffd":2}')).toEqual({ '\ufffd': 2 })
  expect(parseLenientJson('{"\\ufffd":2,"\\ud800":1}')).toEqual({ '\ufffd': 1 })
})

it('bytes that are not UTF-8 are replaced, and a byte order mark is dropped', () => {
  const bytes = concatBytes(
    encodeUtf8('\ufeff"a'),
    new Uint8Array([0xff, 0xed, 0xa0]),
    encodeUtf8('"'),
  )
  expect(parseLenientJson(bytes)).toMatch(/^a\ufffd+$/)
})

it('parseLenientJson keeps __proto__ as a member, even beside values that it must replace', () => {
  for (const text of [
    '{"__proto__":{"polluted":1}}',
    '{"__proto__":{"polluted":1},"a":1e999}',
    '{"__proto__":"\\ud800"}',
  ]) {
    const value = parseLenientJson(text)
    expect(Object.keys(value as object)).toContain('__proto__')
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
  }
})

it.each(['', '{', '{"a":1} x', "{'a':1}", 'undefined', '[1,]'])(
  'the text %j, which is no JSON, is refused',
  (text) => {
    expect(codeOf(() => parseLenientJson(text))).toBe('syntax')
  },
)

it('parseLenientJson refuses values deeper than the limit, however deep they are', () => {
  const nest = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)
  expect(parseLenientJson(nest(JSON_DEPTH_MAX))).toBeDefined()
  expect(codeOf(() => parseLenientJson(nest(JSON_DEPTH_MAX + 1)))).toBe('too_deep')
  expect(codeOf(() => parseLenientJson(nest(100_000)))).toBe('too_deep')
  expect(codeOf(() => parseLenientJson(`${'{"a":'.repeat(200)}"\\ud800"${'}'.repeat(200)}`))).toBe(
    'too_deep',
  )
})
