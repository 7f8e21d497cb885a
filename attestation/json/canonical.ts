import { JsonError } from './json-error.ts'
import { isJsonArray, type Json, type JsonObject } from './value.ts'

/**
 * Maximum depth for canonicalizeJson. Parsers accept much less, and the call stack allows much
 * more.
 */
export const CANONICAL_DEPTH_MAX = 1024

/**
 * RFC 8785 (JCS) text of `value`: no white space; members sorted by the UTF-16 code units of their
 * names; numbers as ECMAScript writes doubles (-0 as 0); the shortest escapes. Hash its UTF-8
 * bytes. Throws JsonError `lone_surrogate`, `number_overflow` (NaN and the infinities) and
 * `too_deep`, with path [] and offset 0.
 */
export function canonicalizeJson(value: Json): string {
  return writeValue(value, 0)
}

function writeValue(value: Json, depth: number): string {
  switch (typeof value) {
    case 'string':
      return writeString(value)
    case 'number':
      return writeNumber(value)
    case 'boolean':
      return value ? 'true' : 'false'
    case 'object':
      if (value === null) return 'null'
      if (depth >= CANONICAL_DEPTH_MAX)
        throw refuse('too_deep', `expected at most ${CANONICAL_DEPTH_MAX} levels`)
      return isJsonArray(value) ? writeArray(value, depth + 1) : writeObject(value, depth + 1)
    default:
      // The types exclude this case. Without the error, the hash would not cover the value.
      throw new TypeError(`expected a JSON value, got ${typeof value}`)
  }
}

function writeObject(object: JsonObject, depth: number): string {
  // sort() compares UTF-16 code units by default, as RFC 8785 section 3.2.3 requires.
  const names = Object.keys(object).sort()
  let text = '{'
  for (const name of names) {
    if (text.length > 1) text += ','
    text += `${writeString(name)}:${writeValue(object[name] as Json, depth)}`
  }
  return `${text}}`
}

function writeArray(array: readonly Json[], depth: number): string {
  let text = '['
  for (let index = 0; index < array.length; index++) {
    if (index > 0) text += ','
    text += writeValue(array[index] as Json, depth)
  }
  return `${text}]`
}

function writeString(text: string): string {
  // Most texts need no escape. For them, this test is faster than JSON.stringify.
  if (text.length <= 64 && PLAIN_TEXT.test(text)) return `"${text}"`
  if (!text.isWellFormed()) throw refuse('lone_surrogate', 'expected whole surrogate pairs')
  // JSON.stringify escapes exactly as RFC 8785 section 3.2.2.2 requires.
  return JSON.stringify(text)
}

/** Printable ASCII except the quotation mark and the backslash. */
const PLAIN_TEXT = /^[ !#-[\]-~]*$/

function writeNumber(value: number): string {
  if (!Number.isFinite(value)) throw refuse('number_overflow', 'expected a finite number')
  // Number::toString has the number form of RFC 8785 section 3.2.2.3. It writes -0 as 0.
  return String(value)
}

function refuse(
  code: 'lone_surrogate' | 'number_overflow' | 'too_deep',
  message: string,
): JsonError {
  return new JsonError(code, message, { path: [], offset: 0 })
}
