import { SESSION_ID } from '../demands.ts'
import { FormatError } from '../errors.ts'
import { formsOf } from '../json/forms.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import { parseUnansweredInSession, type UnansweredInSession } from '../unanswered.ts'

const { arrayOf, membersOf, objectOf, textOf } = formsOf('invalid_session', 'the session: ')

/** The value of `format` in session bundles of every version. */
export const SESSION_FORMAT = 'affidavit-session-bundle'

export const SESSION_CALLS_MAX = 10_000

/** The evidence of all calls of a session, in their order (formats.md). */
export type SessionBundle = {
  readonly format: typeof SESSION_FORMAT
  readonly version: 1
  /** 16 to 32 bytes in lower-case hex. */
  readonly id: string
  /** Evidence bundles, in the order of the calls. */
  readonly calls: readonly JsonObject[]
  /** Requests of the session without an answer. Empty if the file has no such member. */
  readonly unanswered: readonly UnansweredInSession[]
}

/** The text of a session bundle before its first call, between two calls, and at its end. */
export const SESSION_TEXT = {
  begin: (id: string) => `{"format":"${SESSION_FORMAT}","version":1,"id":"${id}","calls":[\n`,
  between: ',\n',
  end: (unanswered: readonly UnansweredInSession[]) =>
    unanswered.length === 0 ? '\n]}\n' : `\n],"unanswered":${JSON.stringify(unanswered)}}\n`,
} as const

/** `calls`: the JSON text of each evidence bundle, in their order. */
export function writeSessionBundle(
  id: string,
  calls: readonly string[],
  unanswered: readonly UnansweredInSession[] = [],
): string {
  const { begin, between, end } = SESSION_TEXT
  return `${begin(id)}${calls.map((text) => text.trimEnd()).join(between)}${end(unanswered)}`
}

/**
 * Reads the session bundle in attacker-controlled `json` (read its text with parseExactJson). It
 * must have exactly the members of the format, and 1 to SESSION_CALLS_MAX calls. Throws FormatError
 * `unknown_session` (another format or version) and `invalid_session`. Does NOT read the bundles of
 * the calls: see verifySession.
 */
export function parseSessionBundle(json: Json): SessionBundle {
  const given = isJsonObject(json) ? json : {}
  if (memberOf(given, 'format') !== SESSION_FORMAT || memberOf(given, 'version') !== 1)
    throw new FormatError(
      'unknown_session',
      `expected format to be ${SESSION_FORMAT} and version to be 1`,
    )
  const hasUnanswered = Object.hasOwn(given, 'unanswered')
  const { id, calls, unanswered } = membersOf(json, 'it', [
    'format',
    'version',
    'id',
    'calls',
    ...(hasUnanswered ? (['unanswered'] as const) : []),
  ]) as Readonly<Record<'id' | 'calls' | 'unanswered', Json | undefined>>
  const bundles = arrayOf(calls, 'calls', { min: 1, max: SESSION_CALLS_MAX }, ' bundles')
  return {
    format: SESSION_FORMAT,
    version: 1,
    id: textOf(id, 'id', SESSION_ID),
    calls: bundles.map((bundle, at) => objectOf(bundle, `calls.${at}`)),
    unanswered: hasUnanswered ? parseUnansweredInSession(unanswered) : [],
  }
}
