import { readFileSync } from 'node:fs'
import canonicalize from 'canonicalize'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { CANONICAL_DEPTH_MAX, canonicalizeJson } from '#attestation/json/canonical.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import { parseExactJson, parseStrictJson } from '#attestation/json/parse-strict.ts'
import type { Json } from '#attestation/json/value.ts'
import { codeOf } from '../code-of.ts'

type NumberCase = { readonly bits: string; readonly json: string | null }
type TextCase = { readonly name: string; readonly input: string; readonly canonical: string }

it.each(readCases<NumberCase>('numbers'))(
  'the double $bits has the canonical form $json, and is refused where that is null',
  ({ bits, json }) => {
    const value = new DataView(decodeHex(bits).buffer as ArrayBuffer).getFloat64(0)
    if (json === null) expect(() => canonicalizeJson(value)).toThrow(JsonError)
    else expect(canonicalizeJson(value)).toBe(json)
  },
)

it.each(readCases<TextCase>('texts'))(
  'canonicalizeJson gives the published text: $name',
  ({ input, canonical }) => {
    expect(canonicalizeJson(parseStrictJson(encodeUtf8(input)))).toBe(canonical)
  },
)

it('canonicalizeJson agrees with an independent implementation on any value', () => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'binary', maxDepth: 3 }), (value) => {
      expect(canonicalizeJson(value as Json)).toBe(canonicalize(value))
    }),
    { numRuns: 80 },
  )
})

it('canonicalizeJson agrees with an independent implementation on any double', () => {
  fc.assert(
    fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
      expect(canonicalizeJson(value)).toBe(canonicalize(value))
    }),
    { numRuns: 1500 },
  )
})

it('canonical text that is read again has itself as its canonical form', () => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'binary', maxDepth: 3 }), (value) => {
      const text = canonicalizeJson(value as Json)
      expect(canonicalizeJson(parseExactJson(encodeUtf8(text)))).toBe(text)
    }),
    { numRuns: 80 },
  )
})

it.each([
  ['a string', '\ud800'],
  ['a string after its other half was written backwards', '\udc00\ud800'],
  ['a long string', `${'a'.repeat(1000)}\udfff`],
  ['a name', { '\ud800': 1 }],
  ['a nested value', [{ a: ['\udbff'] }]],
])('canonicalizeJson refuses a lone surrogate in %s', (_, value) => {
  expect(codeOf(() => canonicalizeJson(value))).toBe('lone_surrogate')
})

it.each([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])(
  'canonicalizeJson refuses the number %d',
  (value) => {
    expect(codeOf(() => canonicalizeJson([value]))).toBe('number_overflow')
  },
)

it('a value that is no JSON value is refused instead of left out of the hash', () => {
  expect(() => canonicalizeJson({ a: undefined } as never)).toThrow(TypeError)
  expect(() => canonicalizeJson([() => 1] as never)).toThrow(TypeError)
  expect(() => canonicalizeJson([1n] as never)).toThrow(TypeError)
})

it('canonicalizeJson takes values up to its depth and refuses deeper ones without overflowing the stack', () => {
  expect(canonicalizeJson(nest(CANONICAL_DEPTH_MAX))).toHaveLength(2 * CANONICAL_DEPTH_MAX)
  expect(codeOf(() => canonicalizeJson(nest(CANONICAL_DEPTH_MAX + 1)))).toBe('too_deep')
  expect(codeOf(() => canonicalizeJson(nest(1_000_000)))).toBe('too_deep')
})

function readCases<Case>(name: string): readonly Case[] {
  const path = new URL(`../../vectors/jcs/${name}.json`, import.meta.url)
  return JSON.parse(readFileSync(path, 'utf8')).cases
}

function nest(depth: number): Json {
  let value: Json = []
  for (let level = 1; level < depth; level++) value = [value]
  return value
}
