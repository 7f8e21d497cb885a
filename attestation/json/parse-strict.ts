import { decodeUtf8 } from './decode-utf8.ts'
import { isExactNumber } from './exact-number.ts'
import { ANSWER_SIZE_MAX, type JsonSize } from './json-size.ts'
import { JsonReader, type NumberFault } from './reader.ts'
import type { Json } from './value.ts'

/** Most levels of nested arrays and objects in a request, and in a provider's answer. */
export const JSON_DEPTH_MAX = 128

/**
 * Most arrays and objects of a request, in all. Ten thousand messages with several parts have
 * 50,000. A body of 10 MiB of brackets would have millions: seconds of work for each program that
 * reads it.
 */
export const JSON_CONTAINERS_MAX = 100_000

/**
 * Most members of a request, in all its objects. Ten thousand messages with several parts have
 * 100,000. A body of 10 MiB of members would have nearly a million, which would block a program for
 * many seconds.
 */
export const JSON_MEMBERS_MAX = 200_000

/**
 * Most items of a request, in all its arrays. Token numbers of the largest batch of embeddings are
 * 300,000. A body of 10 MiB of `0,` would have 5 million, which need half a gigabyte for hashing.
 */
export const JSON_ITEMS_MAX = 1_000_000

/**
 * Limits for stored evidence: ten times the limits of an answer, because a page holds several
 * records. A process with an ordinary heap can read evidence within these limits.
 */
const EVIDENCE_SIZE_MAX: JsonSize = {
  containers: 10 * ANSWER_SIZE_MAX.containers,
  members: 10 * ANSWER_SIZE_MAX.members,
  items: 10 * ANSWER_SIZE_MAX.items,
}

/** JSON_DEPTH_MAX for stored evidence, which wraps requests and answers in more objects. */
export const EVIDENCE_DEPTH_MAX = JSON_DEPTH_MAX + 16

/**
 * Parses a request body: UTF-8 JSON (RFC 8259) that all readers read alike and that canonical JSON
 * can represent. `__proto__` is a normal member.
 *
 * Throws JsonError on everything else: a byte order mark; two members of one name (compared after
 * unescaping); lone surrogates; nesting over JSON_DEPTH_MAX; over JSON_CONTAINERS_MAX arrays and
 * objects, JSON_MEMBERS_MAX members or JSON_ITEMS_MAX items; an integer beyond ±(2^53-1); a number
 * with a fraction or an exponent beyond ±(2^53-1) unless canonical JSON keeps its decimal value
 * (1E30 and 1.5e300 are kept, 9007199254740993.0 is not); a number beyond the largest double.
 * Within ±(2^53-1) a fraction is rounded to the nearest double.
 */
export function parseStrictJson(bytes: Uint8Array): Json {
  return new JsonReader({
    text: decodeUtf8(bytes),
    depthMax: JSON_DEPTH_MAX,
    sizeMax: { containers: JSON_CONTAINERS_MAX, members: JSON_MEMBERS_MAX, items: JSON_ITEMS_MAX },
    numberFault: requestNumberFault,
  }).read()
}

/**
 * Parses stored evidence (records, bundles). As parseStrictJson, but with the limits
 * EVIDENCE_DEPTH_MAX and EVIDENCE_SIZE_MAX. Every number must have exactly the decimal value that
 * canonical JSON writes for it. So large numbers of a provider's answer can be read, and changing
 * any digit of a record changes the value. Throws JsonError.
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
