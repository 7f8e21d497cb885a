import { decodeUtf8 } from './decode-utf8.ts'
import { isExactNumber } from './exact-number.ts'
import { ANSWER_SIZE_MAX, type JsonSize } from './json-size.ts'
import { JsonReader, type NumberFault } from './reader.ts'
import type { Json } from './value.ts'

/** Maximum depth of nested arrays and objects in a request, and in a provider's answer. */
export const JSON_DEPTH_MAX = 128

/**
 * Maximum arrays and objects in a request, in all. Ten thousand messages with several parts have
 * 50,000. 10 MiB of brackets would be millions of arrays, and block a program for seconds.
 */
export const JSON_CONTAINERS_MAX = 100_000

/**
 * Maximum members in a request, in all its objects. Ten thousand messages with several parts have
 * 100,000. 10 MiB could hold nearly a million members, and block a program for seconds.
 */
export const JSON_MEMBERS_MAX = 200_000

/**
 * Maximum items in a request, in all its arrays. The largest batch of embeddings has 300,000 token
 * numbers. 10 MiB of `0,` would be 5 million items, and need half a gigabyte to hash.
 */
export const JSON_ITEMS_MAX = 1_000_000

/**
 * Limits for stored evidence, ten times the limits for an answer, because a page holds several
 * records. An ordinary heap is large enough for such evidence.
 */
const EVIDENCE_SIZE_MAX: JsonSize = {
  containers: 10 * ANSWER_SIZE_MAX.containers,
  members: 10 * ANSWER_SIZE_MAX.members,
  items: 10 * ANSWER_SIZE_MAX.items,
}

/** The depth limit for stored evidence, which wraps requests and answers in more objects. */
export const EVIDENCE_DEPTH_MAX = JSON_DEPTH_MAX + 16

/**
 * Parses a request body: UTF-8 JSON (RFC 8259) that has the same value for all readers and that
 * canonical JSON can represent. `__proto__` is a normal member. Throws JsonError on everything
 * else: a byte order mark; two members of one name (compared after unescaping); lone surrogates;
 * nesting over JSON_DEPTH_MAX; over JSON_CONTAINERS_MAX arrays and objects, JSON_MEMBERS_MAX
 * members or JSON_ITEMS_MAX items; an integer beyond ±(2^53-1); beyond ±(2^53-1), a number written
 * with a fraction or an exponent, unless canonical JSON keeps its decimal value (1E30 and 1.5e300
 * are kept, 9007199254740993.0 is not); a number beyond the largest double. Within ±(2^53-1) a
 * fraction is rounded to the nearest double.
 */
export function parseStrictJson(bytes: Uint8Array): Json {
  return parseRequest(bytes, requestNumberFault)
}

/** Parses as parseStrictJson does, but accepts each number: it becomes the nearest double. */
export function parseAnyNumbers(bytes: Uint8Array): Json {
  return parseRequest(bytes, () => null)
}

function parseRequest(bytes: Uint8Array, numberFault: typeof requestNumberFault): Json {
  const sizeMax = {
    containers: JSON_CONTAINERS_MAX,
    members: JSON_MEMBERS_MAX,
    items: JSON_ITEMS_MAX,
  }
  const text = decodeUtf8(bytes)
  return new JsonReader({ text, depthMax: JSON_DEPTH_MAX, sizeMax, numberFault }).read()
}

/**
 * Parses stored evidence (records, bundles) as parseStrictJson does, with the limits
 * EVIDENCE_DEPTH_MAX and EVIDENCE_SIZE_MAX. Every number must have exactly the decimal value that
 * canonical JSON writes for it, so changing a digit in a record always changes the value. Throws
 * JsonError.
 */
export function parseExactJson(bytes: Uint8Array): Json {
  return new JsonReader({
    text: decodeUtf8(bytes),
    depthMax: EVIDENCE_DEPTH_MAX,
    sizeMax: EVIDENCE_SIZE_MAX,
    numberFault: evidenceNumberFault,
  }).read()
}

function requestNumberFault(
  literal: string,
  value: number,
  isInteger: boolean,
): NumberFault | null {
  if (Math.abs(value) <= Number.MAX_SAFE_INTEGER) return null
  if (isInteger) return 'unsafe_integer'
  if (!Number.isFinite(value)) return 'number_overflow'
  return isExactNumber(literal, value) ? null : 'unsafe_integer'
}

function evidenceNumberFault(literal: string, value: number): NumberFault | null {
  if (!Number.isFinite(value)) return 'number_overflow'
  return isExactNumber(literal, value) ? null : 'inexact_number'
}
