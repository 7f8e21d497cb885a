import { FormatError } from '../errors.ts'
import { hasExactMembers, isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts'

/** Lower-case hex of exactly `bytes` bytes. Throws FormatError `invalid_release` naming `name`. */
export function hexOf(json: Json | undefined, name: string, bytes: number): string {
  if (typeof json !== 'string' || json.length !== 2 * bytes || !LOWER_CASE_HEX.test(json))
    throw invalidRelease(name, `${2 * bytes} lower-case hex digits`)
  return json
}

/** Text of the form `form`, which is what the message says of it. Throws FormatError `invalid_release` naming `name`. */
export function textOf(
  json: Json | undefined,
  name: string,
  { form, expectation }: { readonly form: RegExp; readonly expectation: string },
): string {
  if (typeof json !== 'string' || !form.test(json)) throw invalidRelease(name, expectation)
  return json
}

/**
 * A time as ISO 8601 in UTC, to the second, in the one form `2026-11-21T14:00:00Z`, of the years 1970 to 9999. Throws
 * FormatError `invalid_release` naming `name`.
 */
export function timeOf(json: Json | undefined, name: string): string {
  if (typeof json !== 'string' || !TIME_FORM.test(json) || !isTime(json))
    throw invalidRelease(name, 'a time such as 2026-11-21T14:00:00Z')
  return json
}

/** Unix milliseconds of a time that `timeOf` took. */
export function millisecondsOf(time: string): number {
  return Date.parse(time)
}

/** The one form of a time, Unix milliseconds, cut to the second. Throws FormatError `invalid_release` outside 1970 to 9999. */
export function formatTime(timeMs: number): string {
  if (!(timeMs >= 0 && timeMs <= TIME_MS_MAX)) throw invalidRelease('the time', 'of the years 1970 to 9999')
  return `${new Date(timeMs).toISOString().slice(0, 19)}Z`
}

/** A time in words for messages, Unix milliseconds; also one that is no date, as a document's may be. */
export function describeTime(timeMs: number): string {
  const time = new Date(timeMs)
  return Number.isNaN(time.getTime()) ? `${timeMs} ms` : time.toISOString()
}

/** The members of an object that has exactly `names`. Throws FormatError `invalid_release` naming `name`. */
export function membersOf<Name extends string>(
  json: Json | undefined,
  name: string,
  names: readonly Name[],
): Readonly<Record<Name, Json>> {
  if (!isJsonObject(json) || !hasExactMembers(json, names))
    throw invalidRelease(name, `an object of ${names.join(', ')}`)
  return json
}

/** An object. Throws FormatError `invalid_release` naming `name`. */
export function objectOf(json: Json | undefined, name: string): JsonObject {
  if (!isJsonObject(json)) throw invalidRelease(name, 'an object')
  return json
}

/** An array of `min` to `max` values. Throws FormatError `invalid_release` naming `name`. */
export function arrayOf(
  json: Json | undefined,
  name: string,
  { min, max }: { readonly min: number; readonly max: number },
): readonly Json[] {
  if (!isJsonArray(json) || json.length < min || json.length > max)
    throw invalidRelease(name, `an array of ${min} to ${max}`)
  return json
}

/** What is thrown when the member `name` has not its form. */
export function invalidRelease(name: string, expectation: string): FormatError {
  return new FormatError('invalid_release', `expected ${name} to be ${expectation}`)
}

const LOWER_CASE_HEX = /^[0-9a-f]*$/

const TIME_FORM = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$/

const TIME_MS_MAX = Date.UTC(9999, 11, 31, 23, 59, 59)

/** Not 30 February, and not 24:00:00, which some readers take for the next day. */
function isTime(text: string): boolean {
  const timeMs = Date.parse(text)
  return (
    timeMs >= 0 && timeMs <= TIME_MS_MAX && new Date(timeMs).toISOString() === `${text.slice(0, 19)}.000Z`
  )
}
