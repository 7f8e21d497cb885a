import { JsonError } from '#attestation/json/json-error.ts'
import { parseStrictJson } from '#attestation/json/parse-strict.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'

/**
 * One fault of a request (interface, part 7): the faulty place (`['body', 'messages', 0, 'role']`),
 * a message, and a stable type.
 */
export type RequestFault = {
  readonly loc: readonly (string | number)[]
  readonly msg: string
  readonly type: string
}

export type Fault = Omit<RequestFault, 'loc'>

export const WRONG_TYPE = {
  string: { msg: 'Input should be a valid string', type: 'string_type' },
  number: { msg: 'Input should be a valid number', type: 'float_type' },
  boolean: { msg: 'Input should be a valid boolean', type: 'bool_type' },
  array: { msg: 'Input should be a valid list', type: 'list_type' },
  object: { msg: 'Input should be a valid dictionary', type: 'dict_type' },
} as const satisfies Readonly<Record<string, Fault>>

export const MISSING: Fault = { msg: 'Field required', type: 'missing' }

/** Returns the fault for a size beyond `bound`: a number, or the length of a text or a list. */
export function beyondBound(side: 'most' | 'least', origin: string, bound: number): Fault {
  const length = side === 'most' ? 'too_long' : 'too_short'
  if (origin === 'string')
    return { msg: `String should have at ${side} ${bound} characters`, type: `string_${length}` }
  if (origin === 'array') return { msg: `List should have at ${side} ${bound} items`, type: length }
  return side === 'most'
    ? { msg: `Input should be less than or equal to ${bound}`, type: 'less_than_equal' }
    : { msg: `Input should be greater than or equal to ${bound}`, type: 'greater_than_equal' }
}

/** Returns the fault of a value that is not in `values`. */
export function noneOf(values: readonly string[]): Fault {
  const quoted = values.map((value) => `'${value}'`)
  const last = quoted.pop() ?? ''
  const listed = quoted.length === 0 ? last : `${quoted.join(', ')} or ${last}`
  return { msg: `Input should be ${listed}`, type: 'literal_error' }
}

export function unlikePattern(pattern: string): Fault {
  return { msg: `String should match pattern '${pattern}'`, type: 'string_pattern_mismatch' }
}

/** Maximum number of faults of one request that an answer contains. */
export const FAULTS_MAX = 50

/** Maximum length of a member name in a fault. Longer names are cut. */
export const LOC_NAME_LENGTH_MAX = 128

/** The `loc` of a fault: the part of the request, and the path to the value. */
export function faultLocation(
  place: string,
  path: readonly (string | number)[],
): readonly (string | number)[] {
  return [
    place,
    ...path.map((step) => (typeof step === 'string' ? step.slice(0, LOC_NAME_LENGTH_MAX) : step)),
  ]
}

/**
 * Returns the JSON value of a body (attacker-controlled bytes), or a fault if the body is empty or
 * is not strict JSON, as `parse` says.
 */
export function readJson(
  body: Uint8Array,
  parse: (body: Uint8Array) => Json = parseStrictJson,
): { readonly json: Json } | { readonly fault: RequestFault } {
  if (body.length === 0) return { fault: { loc: ['body'], ...MISSING } }
  try {
    return { json: parse(body) }
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
    const isSyntax = error.code === 'syntax' || error.code === 'invalid_utf8'
    const loc = isSyntax ? ['body', error.offset] : faultLocation('body', error.path)
    const type = error.code === 'syntax' ? 'json_invalid' : error.code
    return { fault: { loc, msg: error.message, type } }
  }
}

/** Returns the JSON object in a body (attacker-controlled bytes), or the faults of the body. */
export function readRequestObject(
  body: Uint8Array,
): { readonly request: JsonObject } | { readonly faults: readonly RequestFault[] } {
  const read = readJson(body)
  if ('fault' in read) return { faults: [read.fault] }
  if (isJsonObject(read.json)) return { request: read.json }
  return { faults: [{ loc: ['body'], ...WRONG_TYPE.object }] }
}
