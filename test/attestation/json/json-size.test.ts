import fc from 'fast-check'
import { expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { JsonError } from '#attestation/json/json-error.ts'
import {
  ANSWER_SIZE_MAX,
  isWithinSize,
  type JsonSize,
  measureJson,
} from '#attestation/json/json-size.ts'
import { parseLenientJson } from '#attestation/json/parse-lenient.ts'
import { JSON_ITEMS_MAX, parseStrictJson } from '#attestation/json/parse-strict.ts'

/** The same counts, of the value. */
function countValue(value: unknown): JsonSize {
  if (typeof value !== 'object' || value === null) return { containers: 0, members: 0, items: 0 }
  const parts = Object.values(value)
  const own = Array.isArray(value)
    ? { members: 0, items: parts.length }
    : { members: parts.length, items: 0 }
  return parts.map(countValue).reduce(
    (sum, part) => ({
      containers: sum.containers + part.containers,
      members: sum.members + part.members,
      items: sum.items + part.items,
    }),
    { containers: 1, ...own },
  )
}

it('measureJson counts what a value is made of, with any white space, in text and in bytes', () => {
  const written = fc.tuple(
    fc.jsonValue({ stringUnit: 'binary', maxDepth: 3 }),
    fc.constantFrom('', ' ', '\n\t'),
  )
  fc.assert(
    fc.property(written, ([value, space]) => {
      const text = JSON.stringify(value, null, space)
      const expected = countValue(JSON.parse(text))
      expect(measureJson(text)).toEqual(expected)
      expect(measureJson(encodeUtf8(text))).toEqual(expected)
    }),
    { numRuns: 80 },
  )
})

it('a cut text counts at most as its whole, and a text that is no JSON is counted all the same', () => {
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 3 }), fc.nat(), (value, cut) => {
      const text = JSON.stringify(value)
      const begun = measureJson(text.slice(0, cut % (text.length + 1)))
      const whole = measureJson(text)
      expect(begun.containers).toBeLessThanOrEqual(whole.containers)
      expect(begun.members + begun.items).toBeLessThanOrEqual(whole.members + whole.items)
    }),
  )
  expect(measureJson('{},'.repeat(1000)).containers).toBe(1000)
})

it.each(['containers', 'members', 'items'] as const)(
  'isWithinSize accepts a size at its limits and refuses one more of its %s',
  (name) => {
    expect(isWithinSize(ANSWER_SIZE_MAX, ANSWER_SIZE_MAX)).toBe(true)
    expect(
      isWithinSize({ ...ANSWER_SIZE_MAX, [name]: ANSWER_SIZE_MAX[name] + 1 }, ANSWER_SIZE_MAX),
    ).toBe(false)
  },
)

it('an answer with too many containers is refused before anything is built from it', () => {
  const list = (length: number) => `[${'{},'.repeat(length - 2)}{}]`
  expect(parseLenientJson(list(ANSWER_SIZE_MAX.containers))).toHaveLength(
    ANSWER_SIZE_MAX.containers - 1,
  )
  // No parser gets to the end of this one, so it was refused before.
  const begun = list(ANSWER_SIZE_MAX.containers + 1).slice(0, -1)
  expect(() => parseLenientJson(begun)).toThrow(expect.objectContaining({ code: 'too_many' }))
})

it('a request may have JSON_ITEMS_MAX items in its arrays and no more', () => {
  const items = (length: number) => encodeUtf8(`[${'0,'.repeat(length - 1)}0]`)
  expect(parseStrictJson(items(JSON_ITEMS_MAX))).toHaveLength(JSON_ITEMS_MAX)
  expect(() => parseStrictJson(items(JSON_ITEMS_MAX + 1))).toThrow(JsonError)
})
