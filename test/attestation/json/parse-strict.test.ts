import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import {
  EVIDENCE_DEPTH_MAX,
  JSON_CONTAINERS_MAX,
  JSON_DEPTH_MAX,
  JSON_MEMBERS_MAX,
  parseExactJson,
  parseStrictJson,
} from '#attestation/json/parse-strict.ts'
import type { Json } from '#attestation/json/value.ts'

/** A megabyte's quarter: quadratic work on it would take minutes. */
const MANY = 1 << 18

it('parseStrictJson reads any value as JSON.parse does', () => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'binary', maxDepth: 3 }), fc.nat(4), (value, indent) => {
      const text = JSON.stringify(value, null, indent)
      fc.pre(isFaithful(text))
      expect(isDeepStrictEqual(parse(text), JSON.parse(text))).toBe(true)
    }),
    { numRuns: 80 },
  )
})

it('parseStrictJson reads strings with every kind of escape as JSON.parse does', () => {
  const piece = fc.oneof(
    fc.string({ unit: 'binary' }).map((text) => JSON.stringify(text).slice(1, -1)),
    fc.constantFrom(...'"\\/bfnrt'.split('').map((sign) => `\\${sign}`), '\\uD83D\\uDE00'),
    fc.nat(0xd7ff).map((code) => `\\u${code.toString(16).padStart(4, '0')}`),
  )
  fc.assert(
    fc.property(fc.array(piece), (pieces) => {
      const text = `"${pieces.join('')}"`
      expect(parse(text)).toBe(JSON.parse(text))
    }),
    { numRuns: 200 },
  )
})

it('parseStrictJson accepts no text that JSON.parse refuses and calls no valid JSON a syntax error', () => {
  fc.assert(
    fc.property(mutatedJson(), (text) => {
      const expected = attempt(() => JSON.parse(text))
      const actual = attempt(() => parse(text))
      if ('value' in actual) {
        expect('value' in expected && isDeepStrictEqual(actual.value, expected.value)).toBe(true)
        return
      }
      expect(actual.error).toBeInstanceOf(JsonError)
      if (actual.error instanceof JsonError && actual.error.code === 'syntax')
        expect('error' in expected).toBe(true)
    }),
    { numRuns: 200 },
  )
})

it.each([
  ['nothing', '', 0],
  ['white space only', ' \n\t\r', 4],
  ['a byte order mark', '\ufeff{}', 0],
  ['something after the value', '{} {}', 3],
  ['a comma after the last member', '{"a":1,}', 7],
  ['a comma after the last item', '[1,]', 3],
  ['a leading zero', '[01]', 1],
  ['a negative leading zero', '-01', 1],
  ['a plus sign', '+1', 0],
  ['a point without digits', '1.', 2],
  ['a point without a whole part', '.5', 0],
  ['an exponent without digits', '1e+', 3],
  ['a hexadecimal number', '0x10', 1],
  ['NaN', '[NaN]', 1],
  ['an upper-case word', 'True', 0],
  ['a cut word', 'tru', 0],
  ['a longer word', 'nulls', 4],
  ['single quotes', "{'a':1}", 1],
  ['a bare name', '{a:1}', 1],
  ['a missing colon', '{"a" 1}', 5],
  ['a missing value', '{"a":}', 5],
  ['an unclosed object', '{"a":1', 6],
  ['an unclosed array', '[1', 2],
  ['an unclosed string', '"abc', 4],
  ['an unclosed escape', '"abc\\', 4],
  ['an unknown escape', '"a\\x41"', 2],
  ['a short Unicode escape', '"\\u12"', 1],
  ['a Unicode escape of other characters', '"\\u12g4"', 1],
  ['a raw newline in a string', '"a\nb"', 2],
  ['a raw NUL in a string', '"a\u0000b"', 2],
  ['a raw control character after an escape', '"\\n\u001f"', 3],
  ['a comment', '/* */ 1', 0],
  ['no-break space around the value', '\u00a01', 0],
  ['a form feed around the value', '\f1', 0],
])('parseStrictJson refuses a syntax error: %s', (_, text, offset) => {
  expect(faultOf(text)).toMatchObject({ code: 'syntax', offset })
})

it.each([
  ['plain', '{"a":1,"b":2,"a":1}', ['a'], 13],
  ['one of them escaped', '{"a":1,"\\u0061":2}', ['a'], 7],
  ['deep in the value', '{"x":[{},{"k":{},"k":{}}]}', ['x', 1, 'k'], 17],
  ['of what every object inherits', '{"toString":1,"toString":2}', ['toString'], 14],
  ['__proto__', '{"__proto__":1,"__proto__":2}', ['__proto__'], 15],
  ['empty', '{"":1,"":2}', [''], 6],
  ['an array index', '{"7":1,"7":2}', ['7'], 7],
])('parseStrictJson refuses a second member of the same name: %s', (_, text, path, offset) => {
  expect(faultOf(text)).toMatchObject({ code: 'duplicate_key', path, offset })
})

it('parseStrictJson keeps __proto__ as a member and leaves every prototype alone', () => {
  const value = parse(
    '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}}}',
  )
  expect(Object.keys(value as object)).toEqual(['__proto__', 'constructor'])
  expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
  expect('polluted' in {}).toBe(false)
})

it.each([
  '0',
  '-0',
  '9007199254740991',
  '-9007199254740991',
  '1e21',
  '1E30',
  '1.5e300',
  '9007199254740992.0',
  '1e20',
  '1.7976931348623157e308',
  '5e-324',
  '1e-400',
  '0.1000000000000000055511151231257827',
  '123456789012345.678',
])('parseStrictJson reads %s as the nearest double', (literal) => {
  expect(parse(`[${literal}]`)).toEqual([Number(literal)])
})

it.each([
  ['9007199254740992', 'unsafe_integer'],
  ['-9007199254740992', 'unsafe_integer'],
  ['9007199254740993', 'unsafe_integer'],
  ['100000000000000000000', 'unsafe_integer'],
  ['1'.repeat(400), 'unsafe_integer'],
  ['9007199254740993.0', 'unsafe_integer'],
  ['9007199254740993e0', 'unsafe_integer'],
  ['90071992547409.93e2', 'unsafe_integer'],
  ['9007199254740993.5', 'unsafe_integer'],
  ['1.7976931348623158e308', 'unsafe_integer'],
  ['1e400', 'number_overflow'],
  ['-1e309', 'number_overflow'],
  [`${'1'.repeat(400)}.0`, 'number_overflow'],
])('the number %s is refused as %s', (literal, code) => {
  expect(faultOf(`{"seed":${literal}}`)).toMatchObject({ code, path: ['seed'], offset: 8 })
})

it('an integer is accepted exactly when a double holds every integer up to it', () => {
  fc.assert(
    fc.property(fc.bigInt({ min: -(2n ** 60n), max: 2n ** 60n }), (integer) => {
      const isSafe = integer >= -(2n ** 53n - 1n) && integer <= 2n ** 53n - 1n
      expect('value' in attempt(() => parse(String(integer)))).toBe(isSafe)
    }),
    { numRuns: 200 },
  )
})

it('parseStrictJson does not detect that a fraction within ±(2^53-1) was rounded', () => {
  expect(parse('0.30000000000000000001')).toBe(0.3)
})

it.each([
  ['high half, escaped', '"\\ud83d"'],
  ['low half, escaped', '"\\uDE00"'],
  ['halves in the wrong order', '"\\ude00\\ud83d"'],
  ['high half before another escape', '"\\ud83d\\n"'],
  ['in a name', '{"\\udfff":1}'],
])('parseStrictJson refuses a lone surrogate: %s', (_, text) => {
  expect(faultOf(text)).toMatchObject({ code: 'lone_surrogate', path: [] })
})

it('parseStrictJson reads a pair of escaped surrogates as one character', () => {
  expect(parse('"\\ud83d\\ude00 \\\\ud83d"')).toBe('😀 \\ud83d')
})

it.each([
  ['a byte that begins nothing', [0x22, 0xff, 0x22], 1],
  ['an overlong form', [0x22, 0xc0, 0xaf, 0x22], 1],
  ['a surrogate in UTF-8', [0x22, 0x61, 0xed, 0xa0, 0x80, 0x22], 2],
  ['a code point over U+10FFFF', [0x22, 0xf4, 0x90, 0x80, 0x80, 0x22], 1],
  ['a cut sequence', [0x22, 0xe2, 0x82], 1],
  ['a fault behind a real U+FFFD', [0x22, 0xef, 0xbf, 0xbd, 0xf0, 0x9f, 0x98, 0x80, 0x80], 8],
])('parseStrictJson refuses bytes that are not UTF-8: %s', (_, bytes, offset) => {
  const result = attempt(() => parseStrictJson(new Uint8Array(bytes)))
  expect(result).toMatchObject({ error: { code: 'invalid_utf8', offset, path: [] } })
})

it('the offset of a fault is counted in bytes', () => {
  expect(faultOf('{"ä€😀":tru}')).toMatchObject({
    offset: encodeUtf8('{"ä€😀":').length,
    path: ['ä€😀'],
  })
})

it('the message of a fault says nothing of the text', () => {
  for (const text of [
    '{"secret":1,"secret":2}',
    '["secret" "secret"]',
    '{"secret":1e999}',
    '"\\ud800secret"',
  ])
    expect(faultOf(text).message).not.toContain('secret')
})

it('a body may have JSON_CONTAINERS_MAX arrays and objects in all and no more', () => {
  const list = (count: number) => `[${Array.from({ length: count - 1 }, () => '{}').join(',')}]`
  expect(parse(list(JSON_CONTAINERS_MAX))).toHaveLength(JSON_CONTAINERS_MAX - 1)
  expect(faultOf(list(JSON_CONTAINERS_MAX + 1)).code).toBe('too_many')
})

it('a body may have JSON_MEMBERS_MAX members in all and no more, however they are shared out', () => {
  const object = (count: number) =>
    `{${Array.from({ length: count }, (_, index) => `"${index}":1`).join(',')}}`
  const half = object(JSON_MEMBERS_MAX / 2)
  expect(parse(`[${half},${half}]`)).toHaveLength(2)
  expect(faultOf(`[${half},${object(JSON_MEMBERS_MAX / 2 + 1)}]`).code).toBe('too_many')
})

it('arrays and objects inside each other are read up to the limit, and one more is refused', () => {
  for (const [open, close] of [
    ['[', ']'],
    ['{"a":', '}'],
  ] as const) {
    const nest = (depth: number) => `${open.repeat(depth - 1)}[]${close.repeat(depth - 1)}`
    expect(parse(nest(JSON_DEPTH_MAX))).toBeDefined()
    expect(faultOf(nest(JSON_DEPTH_MAX + 1)).code).toBe('too_deep')
  }
})

it.each([
  ['opening brackets', '['.repeat(2 * MANY)],
  ['opening objects', '{"a":'.repeat(MANY / 2)],
  ['digits', '1'.repeat(2 * MANY)],
  ['digits of a fraction', `0.${'1'.repeat(2 * MANY)}`],
  ['digits of an exponent', `1e${'1'.repeat(2 * MANY)}`],
  ['zeros before a large exponent', `0.${'0'.repeat(2 * MANY)}1e2097160`],
  ['escapes', `"${'\\u0041'.repeat(MANY / 3)}"`],
  ['names', `{${Array.from({ length: 40_000 }, (_, index) => `"k${index}":1`).join(',')}}`],
  [
    'names far apart as indexes',
    `{${Array.from({ length: 40_000 }, (_, i) => `"${i * 4096}":1`).join(',')}}`,
  ],
  ['empty objects', `[${'{},'.repeat(MANY / 2)}{}]`],
  ['an unclosed string', `"${'a'.repeat(2 * MANY)}`],
])('parseStrictJson stays far from quadratic on a body full of %s', (_, text) => {
  const bytes = encodeUtf8(text)
  const before = process.cpuUsage()
  attempt(() => parseStrictJson(bytes))
  expect(process.cpuUsage(before).user).toBeLessThan(2_000_000)
})

it('parseExactJson reads back what a large number of an answer was canonicalised to', () => {
  for (const literal of [
    '12345678901234567000',
    '1.7976931348623157e+308',
    '-1e+23',
    '100000000000000000000',
  ])
    expect(parseExactJson(encodeUtf8(literal))).toBe(Number(literal))
})

it.each([
  '9007199254740993',
  '0.1000000000000000055511151231257827',
  '1e-400',
  '12345678901234567001',
  '0.30000000000000000001',
])('parseExactJson refuses %s, which has digits that a double loses', (literal) => {
  const result = attempt(() => parseExactJson(encodeUtf8(`[${literal}]`)))
  expect(result).toMatchObject({ error: { code: 'inexact_number', path: [0], offset: 1 } })
})

it('parseExactJson reads values up to the depth of evidence and refuses deeper ones', () => {
  const nest = (depth: number) => encodeUtf8('['.repeat(depth) + ']'.repeat(depth))
  expect(parseExactJson(nest(EVIDENCE_DEPTH_MAX))).toBeDefined()
  expect(attempt(() => parseExactJson(nest(EVIDENCE_DEPTH_MAX + 1)))).toMatchObject({
    error: { code: 'too_deep' },
  })
})

function parse(text: string): Json {
  return parseStrictJson(encodeUtf8(text))
}

function faultOf(text: string): JsonError {
  const result = attempt(() => parse(text))
  if ('error' in result && result.error instanceof JsonError) return result.error
  throw new Error('expected a JsonError')
}

function attempt<Value>(run: () => Value): { readonly value: Value } | { readonly error: unknown } {
  try {
    return { value: run() }
  } catch (error) {
    return { error }
  }
}

/** Whether the generator made no number that the strict parser refuses by rule. */
function isFaithful(text: string): boolean {
  return !/(^|[[:,\s])-?\d{16,}(?![\d.eE])/.test(text)
}

/**
 * Valid JSON with a few characters cut, doubled, swapped or put in: mostly invalid, and never far
 * from valid.
 */
function mutatedJson(): fc.Arbitrary<string> {
  const fragment = fc.constantFrom(
    ...'"\\{}[],:01-.eE+ \n\u0000ut',
    ...['null', '\\u00', '\\ud83d', '\ufeff'],
  )
  const edit = fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    cut: fc.nat(2),
    put: fc.option(fragment, { nil: '' }),
  })
  const base = fc
    .jsonValue({ stringUnit: 'binary', maxDepth: 3 })
    .map((value) => JSON.stringify(value))
  return fc.tuple(base, fc.array(edit, { maxLength: 3 })).map(([text, edits]) =>
    edits.reduce((current, { at, cut, put }) => {
      const index = Math.floor(at * current.length)
      return (current.slice(0, index) + put + current.slice(index + cut)).toWellFormed()
    }, text),
  )
}
