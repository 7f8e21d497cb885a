import { decodeUtf8 } from './decode-utf8.ts'
import { isExactNumber } from './exact-number.ts'
import { ANSWER_SIZE_MAX, type JsonSize } from './json-size.ts'
import { JsonReader, type NumberFault } from './reader.ts'
import type { Json } from './value.ts'

/**
 * How many arrays and objects may stand inside each other in a request, and in a provider's answer.
 */
export const JSON_DEPTH_MAX = 128

/**
 * How many arrays and objects a request may have in all. Ten thousand messages of several parts are
 * 50,000; a body of 10 MiB made of brackets would otherwise be millions, and seconds of work for
 * each program that reads it.
 */
export const JSON_CONTAINERS_MAX = 100_000

/**
 * How many members the objects of a request may have together. Ten thousand messages of several
 * parts are 100,000; a body of 10 MiB made of members would otherwise be most of a million, which
 * takes many seconds, all in one turn.
 */
export const JSON_MEMBERS_MAX = 200_000

/**
 * How many items the arrays of a request may have together. Token numbers of the largest batch of
 * embeddings are 300,000; a body of 10 MiB made of `0,` would be 5 million, and half a gigabyte
 * once it is hashed.
 */
export const JSON_ITEMS_MAX = 1_000_000

/**
 * The limits of stored evidence: ten times those of one answer, because a page holds several
 * records. A process with an ordinary heap can read what is within them.
 */
const EVIDENCE_SIZE_MAX: JsonSize = {
  containers: 10 * ANSWER_SIZE_MAX.containers,
  members: 10 * ANSWER_SIZE_MAX.members,
  items: 10 * ANSWER_SIZE_MAX.items,
}

/** JSON_DEPTH_MAX for stored evidence, which wraps requests and answers in objects of its own. */
export const EVIDENCE_DEPTH_MAX = JSON_DEPTH_MAX + 16

/**
 * The value of a request body: UTF-8 JSON (RFC 8259) that every reader reads alike and that
 * canonical JSON can represent. `__proto__` is a member like any other.
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
 * The value of stored evidence (records, bundles): as parseStrictJson, but nesting may go to
 * EVIDENCE_DEPTH_MAX, the counts to EVIDENCE_SIZE_MAX, and every number, large or small, must have
 * been written with exactly the decimal value that canonical JSON gives it. So large numbers of a
 * provider's answer are read back, and no digit of a record can be changed without changing the
 * value. Throws JsonError.
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
