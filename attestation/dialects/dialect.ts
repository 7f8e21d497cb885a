import { FormatError } from '../errors.ts'
import { canonicalizeJson } from '../json/canonical.ts'
import {
  filterMembers,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
  memberAt,
  memberOf,
} from '../json/value.ts'

/** The member with the proof of an answer. It is not hashed. */
export const PROOF_MEMBER = 'affidavit'

/** A server-sent event with its data. `event` is '' if the event has no name. */
export type DialectEvent = { readonly event: string; readonly data: JsonObject }

/**
 * Reads one stream from a provider (attacker-controlled) and returns the events that callers
 * receive. Accepts only streams that every reader assembles to the same answer (formats.md,
 * Streams). Adds missing names of events, and leaves out unknown events.
 */
export type StreamReader = {
  /** True after `read` has returned the last event. */
  readonly isEnded: boolean
  /** The events that are held, or wait for others. Their memory is measured. */
  readonly waiting: unknown
  /** The events that the newest `read` returned, or gave before it threw. */
  readonly given: readonly DialectEvent[]
  /** True for the type of an event that ends a stream. */
  isLast(type: string): boolean
  /**
   * Reads the next event. Returns the events that callers receive. Throws FormatError for an event
   * that two readers would understand differently, and `upstream_failure` for an event that reports
   * an error. After an error, the stream has ended, and `response` covers the events so far, also
   * those in `given`, which callers must receive.
   */
  read(event: DialectEvent): readonly DialectEvent[]
  /** The answer from all events so far, without its proof member. */
  response(): JsonObject
}

/**
 * The line that is hashed into `stream_hash` for one event. `data`: canonical JSON without a proof.
 */
export function hashedLine(event: string, data: string): string {
  return `{"data":${data},"event":${JSON.stringify(event)}}\n`
}

/** The object without its proof member. Returns `object` itself if no such member exists. */
export function withoutProof(object: JsonObject): JsonObject {
  if (!Object.hasOwn(object, PROOF_MEMBER)) return object
  return filterMembers(object, (name) => name !== PROOF_MEMBER)
}

/** The error for a stream that two readers would understand differently. */
export function refuse(code: string, message: string): FormatError {
  return new FormatError(code, message)
}

/**
 * The name of an event, or the `type` in its data if it has no name. Throws FormatError
 * `changed_type` if the two differ: some readers use the name, others the `type`.
 */
export function eventNameOf({ event, data }: DialectEvent): string {
  const type = memberOf(data, 'type')
  if (typeof type !== 'string') throw refuse('invalid_form', 'expected an event to have a type')
  if (event !== '' && event !== type)
    throw refuse('changed_type', 'expected the name of an event to be its type')
  return type
}

/** Throws FormatError `invalid_form` if the member is not a text. */
export function textIn(object: JsonObject, name: string): string {
  const value = memberOf(object, name)
  if (typeof value === 'string') return value
  throw refuse('invalid_form', `expected ${name} to be a string`)
}

/** Throws FormatError `invalid_form` if the member is not an object. */
export function objectIn(object: JsonObject, name: string): JsonObject {
  const value = memberOf(object, name)
  if (isJsonObject(value)) return value
  throw refuse('invalid_form', `expected ${name} to be an object`)
}

/** Empty if the member is null or left out. Throws FormatError `invalid_form`. */
export function listIn(object: JsonObject, name: string): readonly JsonObject[] {
  const value = memberOf(object, name) ?? []
  if (isJsonArray(value) && value.every(isJsonObject)) return value
  throw refuse('invalid_form', `expected ${name} to be an array of objects`)
}

/**
 * Ignores an empty id. Throws FormatError `changed_identity` for an id that is already in `ids`.
 */
export function addId(ids: Set<string>, id: readonly Json[]): void {
  if (isEmpty(id.at(-1))) return
  const key = canonicalizeJson(id)
  if (ids.has(key)) throw refuse('changed_identity', 'expected no id twice')
  ids.add(key)
}

/** The provider's text about an error. Providers put it in one of two places. */
export function failureOf(data: JsonObject): string {
  const message = memberOf(data, 'message') ?? memberAt(data, 'error', 'message')
  return typeof message === 'string' ? message : 'no reason given'
}

/** True if a member is left out, null, an empty text or an empty array. */
export function isEmpty(value: Json | undefined): boolean {
  return (
    value === undefined || value === null || value === '' || (isJsonArray(value) && !value.length)
  )
}

export function isSame(one: Json, other: Json): boolean {
  return one === other || canonicalizeJson(one) === canonicalizeJson(other)
}
