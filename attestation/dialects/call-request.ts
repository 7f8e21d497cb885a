import { decodeBase64Url } from '../bytes.ts'
import { DEMANDS_MEMBER, type Demands, demandsOf, parseDemands } from '../demands.ts'
import { formsOf } from '../json/forms.ts'
import { parseStrictJson } from '../json/parse-strict.ts'
import { type Json, type JsonObject, memberOf } from '../json/value.ts'
import { DIALECT_HEADERS, type DialectName } from './dialect-names.ts'

const { invalid, membersOf, objectOf, textOf } = formsOf('invalid_call_request')

/**
 * The header that holds the caller's demands: base64url of their JSON. It is hashed, but not
 * forwarded.
 */
export const DEMANDS_HEADER = 'affidavit-call'

const HEADER_LENGTH_MAX = 8_192

const HEADER = {
  form: new RegExp(`^[\\x20-\\x7e]{1,${HEADER_LENGTH_MAX}}$`),
  expectation: `1 to ${HEADER_LENGTH_MAX} printable ASCII characters`,
}
const BASE64URL = { form: /^[A-Za-z0-9_-]+$/, expectation: 'base64url without padding' }

/** The headers of a call by their lower-case names. */
export type CallHeaders = Readonly<Record<string, string>>

export type CallRequest = {
  readonly headers: CallHeaders
  readonly body: JsonObject
}

/**
 * Returns the hashed headers of a call: those of its dialect, and the one with demands, which
 * demandsOfCall refuses beside demands in the body. If these have `headers`, they replace those of
 * the dialect, since HTTP headers are never encrypted. Throws FormatError `invalid_call_request`
 * for a malformed header and a demanded one that the dialect does not have, and as demandsOf does.
 */
export function hashedHeaders(
  dialect: DialectName,
  body: JsonObject,
  headers: Readonly<Record<string, unknown>>,
): CallHeaders {
  if (dialect === 'chat') return {}
  const demanded = demandsOf(body)?.headers
  const known = DIALECT_HEADERS[dialect]
  const unknown = Object.keys(demanded ?? {}).find((name) => !known.includes(name))
  if (unknown !== undefined)
    throw invalid(
      `${DEMANDS_MEMBER}.headers`,
      `an object of ${known.join(', ')}, without ${unknown.slice(0, 100)}`,
    )
  const hashed: Record<string, string> = {}
  for (const name of namesOf(dialect)) {
    const value = (name === DEMANDS_HEADER ? headers : (demanded ?? headers))[name]
    if (value !== undefined) hashed[name] = textOf(value as Json, name, HEADER).trim()
  }
  return hashed
}

/**
 * Reads a request in its hashed form (formats.md), for a dialect other than chat: an object of
 * exactly `dialect`, `headers` and `body`. Throws FormatError `invalid_call_request`.
 */
export function readCallRequest(dialect: DialectName, request: JsonObject): CallRequest {
  const members = membersOf(request, 'the request', ['dialect', 'headers', 'body'])
  if (members.dialect !== dialect) throw invalid('dialect', dialect)
  const body = objectOf(members.body, 'body')
  const names = namesOf(dialect)
  const given = Object.entries(objectOf(members.headers, 'headers')).map(([name, value]) => {
    if (!names.includes(name)) throw invalid('headers', `an object of ${names.join(', ')}`)
    return [name, textOf(value, name, HEADER)] as const
  })
  return { headers: Object.fromEntries(given), body }
}

/**
 * Returns the demands of a caller in a call other than chat, from the header DEMANDS_HEADER or from
 * the body. Empty without demands. Throws FormatError `invalid_call_request` if both contain
 * demands, and as demandsOf and parseStrictJson do.
 */
export function demandsOfCall({ headers, body }: CallRequest): Demands {
  const { [DEMANDS_HEADER]: header } = headers
  if (header === undefined) return demandsOf(body) ?? {}
  if ((memberOf(body, DEMANDS_MEMBER) ?? null) !== null)
    throw invalid('the demands', `in the header ${DEMANDS_HEADER} or in the body, not in both`)
  return parseDemands(parseStrictJson(decodeBase64Url(textOf(header, DEMANDS_HEADER, BASE64URL))))
}

/** The headers of a receipt: the hashed headers without the demands. */
export function statedHeaders({ [DEMANDS_HEADER]: _, ...headers }: CallHeaders): CallHeaders {
  return headers
}

function namesOf(dialect: DialectName): readonly string[] {
  return [...DIALECT_HEADERS[dialect], DEMANDS_HEADER]
}
