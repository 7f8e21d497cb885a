import { decodeUtf8 } from './decode-utf8.ts'
import { isExactNumber } from './exact-number.ts'
import { JsonReader, type NumberFault } from './reader.ts'
import type { Json } from './value.ts'

/** How many arrays and objects may stand inside each other in a request, and in a provider's answer. */
export const JSON_DEPTH_MAX = 128

/**
 * How many arrays and objects a request may have in all. Ten thousand messages of several parts are 50,000; a body of 10 MiB
 * made of brackets would otherwise be millions, and seconds of work for whoever reads it.
 */
export const JSON_CONTAINERS_MAX = 100_000

/**
 * How many members the objects of a request may have together. Ten thousand messages of several parts are 100,000; a body
 * of 10 MiB made of members would otherwise be most of a million, which takes many seconds, all in one turn.
 */
export const JSON_MEMBERS_MAX = 200_000

/** JSON_DEPTH_MAX for stored evidence, which wraps requests and answers in objects of its own. */
export const EVIDENCE_DEPTH_MAX = JSON_DEPTH_MAX + 16

/**
 * The value of a request body: UTF-8 JSON (RFC 8259) that every reader reads alike and that canonical JSON can
 * represent. `__proto__` is a member like any other.
 *
 * Throws JsonError on everything else: a byte order mark; two members of one name (compared after unescaping);
 * lone surrogates; nesting over JSON_DEPTH_MAX; over JSON_CONTAINERS_MAX
 * arrays and objects, or JSON_MEMBERS_MAX members; an integer beyond ±(2^53-1); a number with a fraction or an
 * exponent beyond ±(2^53-1) unless canonical JSON keeps its decimal value (1E30 and 1.5e300 are kept,
 * 9007199254740993.0 is not); a number beyond the largest double. Within ±(2^53-1) a fraction is rounded to the nearest double.
 */
export function parseStrictJson(bytes: Uint8Array): Json {
  return new JsonReader({
    text: decodeUtf8(bytes),
    depthMax: JSON_DEPTH_MAX,
    containersMax: JSON_CONTAINERS_MAX,
    membersMax: JSON_MEMBERS_MAX,
    numberFault: requestNumberFault,
  }).read()
}

/**
 * The value of stored evidence (records, bundles): as parseStrictJson, but nesting may go to EVIDENCE_DEPTH_MAX,
 * and every number, large or small, must have been written with exactly the decimal value that canonical JSON
 * gives it. So large numbers of a provider's answer are read back, and no digit of a record can be changed
 * without changing the value. Throws JsonError.
 */
export function parseExactJson(bytes: Uint8Array): Json {
  return new JsonReader({
    text: decodeUtf8(bytes),
    depthMax: EVIDENCE_DEPTH_MAX,
    containersMax: Number.POSITIVE_INFINITY,
    membersMax: Number.POSITIVE_INFINITY,
    numberFault: evidenceNumberFault,
  }).read()
}

function requestNumberFault(literal: string, value: number, isInteger: boolean): NumberFault | null {
  if (Math.abs(value) <= Number.MAX_SAFE_INTEGER) return null
  if (isInteger) return 'unsafe_integer'
  if (!Number.isFinite(value)) return 'number_overflow'
  return isExactNumber(literal, value) ? null : 'unsafe_integer'
}

function evidenceNumberFault(literal: string, value: number): NumberFault | null {
  if (!Number.isFinite(value)) return 'number_overflow'
  return isExactNumber(literal, value) ? null : 'inexact_number'
}
