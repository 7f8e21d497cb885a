import { FormatError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import {
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberOf,
  setMember,
} from '../json/value.ts'

/** The member of an answer that carries its proof. It is not hashed. */
export const PROOF_MEMBER = 'affidavit'

/** A server-sent event with its data. `event` is '' when the stream named none. */
export type DialectEvent = { readonly event: string; readonly data: JsonObject }

/**
 * Reads one stream of a provider (attacker-controlled), event by event, and gives the events that
 * callers get for it. It accepts only streams that every reader assembles alike (README.md,
 * Streams). What no reader loses anything by is settled: a missing name is written, unknown events
 * are left out.
 */
export type StreamReader = {
  /** Whether the last event was given out. `read` gives nothing from then on. */
  readonly isEnded: boolean
  /**
   * The events that are given out for the next one, none or several. Throws FormatError for an
   * event that two readers would take in two ways, `upstream_failure` for one that reports an
   * error. The stream is over then; `response` is that of the events before.
   */
  read(event: DialectEvent): readonly DialectEvent[]
  /** The answer as far as events came. It lacks its proof member. */
  response(): JsonObject
}

/** The text that is hashed of a request: JCS of its dialect, its headers and its body. */
export function canonicalRequest(
  dialect: string,
  headers: Readonly<Record<string, string>>,
  body: JsonObject,
): string {
  return canonicalizeJson({ dialect, headers, body })
}

/** The line that `stream_hash` is over, for one event that was given out. */
export function canonicalEvent({ event, data }: DialectEvent): string {
  return `${canonicalizeJson({ event, data: withoutProof(data) })}\n`
}

/** The object without its proof member; `object` itself when it lacks one. */
export function withoutProof(object: JsonObject): JsonObject {
  if (!Object.hasOwn(object, PROOF_MEMBER)) return object
  const kept: Record<string, Json> = {}
  for (const [name, value] of Object.entries(object))
    if (name !== PROOF_MEMBER) setMember(kept, name, value)
  return kept
}

/** What is thrown of a stream that two readers would take in two ways. */
export function refuse(code: string, message: string): FormatError {
  return new FormatError(code, message)
}

/**
 * The name of an event, which its data repeat as `type`; the stream may leave it out. Throws
 * FormatError `changed_type` when the two differ, since some readers go by the one and some by the
 * other.
 */
export function eventNameOf({ event, data }: DialectEvent): string {
  const type = memberOf(data, 'type')
  if (typeof type !== 'string') throw refuse('invalid_form', 'expected an event to have a type')
  if (event !== '' && event !== type)
    throw refuse('changed_type', 'expected the name of an event to be its type')
  return type
}

/** The member of `object`, a text. Throws FormatError `invalid_form`. */
export function textIn(object: JsonObject, name: string): string {
  const value = memberOf(object, name)
  if (typeof value === 'string') return value
  throw refuse('invalid_form', `expected ${name} to be a string`)
}

/** The member of `object`, an object. Throws FormatError `invalid_form`. */
export function objectIn(object: JsonObject, name: string): JsonObject {
  const value = memberOf(object, name)
  if (isJsonObject(value)) return value
  throw refuse('invalid_form', `expected ${name} to be an object`)
}

/** The member of `object`, a list of objects; empty where it is null or left out. */
export function listIn(object: JsonObject, name: string): readonly JsonObject[] {
  const value = memberOf(object, name) ?? []
  if (isJsonArray(value) && value.every(isJsonObject)) return value
  throw refuse('invalid_form', `expected ${name} to be an array of objects`)
}

/** Whether a member is left out, null, or empty text or array. */
export function isEmpty(value: Json | undefined): boolean {
  return (
    value === undefined || value === null || value === '' || (isJsonArray(value) && !value.length)
  )
}

/** Whether two values have the same canonical text. */
export function isSame(one: Json, other: Json): boolean {
  return one === other || canonicalizeJson(one) === canonicalizeJson(other)
}
