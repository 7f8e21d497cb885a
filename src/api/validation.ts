import type { z } from 'zod'
import { JsonError } from '../../attestation/json/json-error.ts'
import { parseStrictJson } from '../../attestation/json/parse-strict.ts'
import type { Json } from '../../attestation/json/value.ts'
import { type FaultDetail, ValidationError } from './errors.ts'

/** At most so many faults of one request are told. */
export const FAULTS_MAX = 50

/** Longer member names are cut where a fault names them: the name is the caller's. */
export const LOC_NAME_LENGTH_MAX = 128

/** Part of the request a fault is in; the first item of its `loc`. */
type FaultPlace = 'body' | 'query' | 'path' | 'header'

/**
 * What `schema` makes of a part of a request; undefined without a schema. Throws ValidationError
 * with all faults.
 */
export function validate<Output>(
  place: FaultPlace,
  schema: z.ZodType<Output> | undefined,
  input: unknown,
): Output {
  const { data, error } = schema?.safeParse(input) ?? {}
  if (error) throw new ValidationError(faultDetails(place, input, error.issues))
  return data as Output
}

/**
 * What `schema` makes of a body's bytes. Throws ValidationError with all faults, also for what is
 * not strict JSON.
 */
export function validateBody<Output>(schema: z.ZodType<Output>, body: Uint8Array): Output {
  return validate('body', schema, parseJsonBody(body))
}

/**
 * JSON value of a body's bytes. Throws ValidationError for an empty body and for JSON that does not
 * mean one thing only.
 */
export function parseJsonBody(body: Uint8Array): Json {
  if (body.length === 0)
    throw new ValidationError([{ loc: ['body'], msg: 'Field required', type: 'missing' }])
  try {
    return parseStrictJson(body)
  } catch (error) {
    if (!(error instanceof JsonError)) throw error
    const isSyntax = error.code === 'syntax' || error.code === 'invalid_utf8'
    const loc = isSyntax ? ['body', error.offset] : faultLocation('body', error.path)
    const type = error.code === 'syntax' ? 'json_invalid' : error.code
    throw new ValidationError([{ loc, msg: error.message, type }])
  }
}

/**
 * Faults that zod found in `input`, in the form and with the type names that clients of this
 * interface know (Pydantic's: `missing`, `string_type`, `less_than_equal` …). Messages never repeat
 * a value of the input.
 */
export function faultDetails(
  place: FaultPlace,
  input: unknown,
  issues: readonly z.core.$ZodIssue[],
): readonly FaultDetail[] {
  const told = issues.slice(0, FAULTS_MAX)
  return told
    .filter((issue) => !isOfWrongType(issue, told))
    .map((issue) => {
      const path = issue.path.filter((step) => typeof step !== 'symbol')
      return { loc: faultLocation(place, path), ...describeIssue(issue, valueAt(input, path)) }
    })
}

/** `loc` of a fault: the place and the way to the value, with overlong names cut. */
function faultLocation(
  place: FaultPlace,
  path: readonly (string | number)[],
): readonly (string | number)[] {
  return [
    place,
    ...path.map((step) => (typeof step === 'string' ? step.slice(0, LOC_NAME_LENGTH_MAX) : step)),
  ]
}

/**
 * What is long or short as another type than it should be is of the wrong type, and nothing else.
 */
function isOfWrongType(
  { code, path }: z.core.$ZodIssue,
  all: readonly z.core.$ZodIssue[],
): boolean {
  if (code !== 'too_big' && code !== 'too_small') return false
  return all.some((other) => other.code === 'invalid_type' && isSamePath(other.path, path))
}

function isSamePath(left: readonly PropertyKey[], right: readonly PropertyKey[]): boolean {
  return left.length === right.length && left.every((step, place) => step === right[place])
}

type Description = Pick<FaultDetail, 'msg' | 'type'>

function describeIssue(issue: z.core.$ZodIssue, value: unknown): Description {
  if (value === undefined && issue.code !== 'custom')
    return { msg: 'Field required', type: 'missing' }
  switch (issue.code) {
    case 'invalid_type':
      return (
        TYPE_FAULTS[issue.expected] ?? {
          msg: `Input should be a valid ${issue.expected}`,
          type: 'value_error',
        }
      )
    case 'too_big':
      return describeBound('most', issue.origin, Number(issue.maximum))
    case 'too_small':
      return describeBound('least', issue.origin, Number(issue.minimum))
    case 'invalid_value':
      return { msg: `Input should be ${listValues(issue.values)}`, type: 'literal_error' }
    case 'invalid_format':
      return {
        msg: `String should match pattern '${issue.pattern ?? issue.format}'`,
        type: 'string_pattern_mismatch',
      }
    case 'custom':
      return {
        msg: issue.message,
        type: typeof issue.params?.type === 'string' ? issue.params.type : 'value_error',
      }
    default:
      return { msg: issue.message, type: 'value_error' }
  }
}

const TYPE_FAULTS: Readonly<Record<string, Description>> = {
  string: { msg: 'Input should be a valid string', type: 'string_type' },
  number: { msg: 'Input should be a valid number', type: 'float_type' },
  boolean: { msg: 'Input should be a valid boolean', type: 'bool_type' },
  array: { msg: 'Input should be a valid list', type: 'list_type' },
  object: { msg: 'Input should be a valid dictionary', type: 'dict_type' },
  record: { msg: 'Input should be a valid dictionary', type: 'dict_type' },
}

function describeBound(side: 'most' | 'least', origin: string, bound: number): Description {
  const [long, short] =
    side === 'most' ? ['too_long', 'less_than_equal'] : ['too_short', 'greater_than_equal']
  if (origin === 'string')
    return { msg: `String should have at ${side} ${bound} characters`, type: `string_${long}` }
  if (origin === 'array') return { msg: `List should have at ${side} ${bound} items`, type: long }
  const relation = side === 'most' ? 'less' : 'greater'
  return { msg: `Input should be ${relation} than or equal to ${bound}`, type: short }
}

function listValues(values: readonly z.core.util.Primitive[]): string {
  const quoted = values.map((value) => `'${String(value)}'`)
  return quoted.length < 2 ? quoted.join() : `${quoted.slice(0, -1).join(', ')} or ${quoted.at(-1)}`
}

function valueAt(input: unknown, path: readonly (string | number)[]): unknown {
  let value = input
  for (const step of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return undefined
    value = (value as Readonly<Record<string | number, unknown>>)[step]
  }
  return value
}
