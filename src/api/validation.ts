import type { z } from 'zod'
import { decodeUtf8 } from '#attestation/json/decode-utf8.ts'
import { parseAnyNumbers } from '#attestation/json/parse-strict.ts'
import type { Json } from '#attestation/json/value.ts'
import {
  beyondBound,
  FAULTS_MAX,
  type Fault,
  faultLocation,
  MISSING,
  noneOf,
  type RequestFault,
  readJson,
  unlikePattern,
  WRONG_TYPE,
} from '#enclave/protocol/request-faults.ts'
import { parseKeepingDigits } from '../runtime/keep-digits.ts'
import { ValidationError } from './errors.ts'

/** The first item of a fault's `loc`. */
type FaultPlace = 'body' | 'query' | 'path' | 'header'

/** Without a schema, returns undefined. Throws ValidationError with all faults. */
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
 * Throws ValidationError for an empty body, malformed JSON or JSON with more than one meaning.
 * `keepsDigits`: the body is passed on, so integers of any length are accepted and kept.
 */
export function parseJsonBody(body: Uint8Array, keepsDigits = false): Json {
  const read = keepsDigits ? readJson(body, parsePassedOn) : readJson(body)
  if ('fault' in read) throw new ValidationError([read.fault])
  return read.json
}

function parsePassedOn(body: Uint8Array): Json {
  parseAnyNumbers(body)
  return parseKeepingDigits(decodeUtf8(body))
}

/**
 * The form and the type names are Pydantic's (`missing`, `string_type`, `less_than_equal` …), as
 * clients of this interface expect. Messages never repeat a value from the input.
 */
export function faultDetails(
  place: FaultPlace,
  input: unknown,
  issues: readonly z.core.$ZodIssue[],
): readonly RequestFault[] {
  const reported = issues.slice(0, FAULTS_MAX)
  return reported
    .filter((issue) => !isOfWrongType(issue, reported))
    .map((issue) => {
      const path = issue.path.filter((step) => typeof step !== 'symbol')
      return { loc: faultLocation(place, path), ...describeIssue(issue, valueAt(input, path)) }
    })
}

/** A value of the wrong type may also have a wrong length. Only the wrong type is reported. */
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

function describeIssue(issue: z.core.$ZodIssue, value: unknown): Fault {
  if (value === undefined && issue.code !== 'custom') return MISSING
  switch (issue.code) {
    case 'invalid_type':
      return (
        TYPE_FAULTS[issue.expected] ?? {
          msg: `Input should be a valid ${issue.expected}`,
          type: 'value_error',
        }
      )
    case 'too_big':
      return beyondBound('most', issue.origin, Number(issue.maximum))
    case 'too_small':
      return beyondBound('least', issue.origin, Number(issue.minimum))
    case 'invalid_value':
      return noneOf(issue.values.map(String))
    case 'invalid_format':
      return unlikePattern(issue.pattern ?? issue.format)
    case 'custom':
      return {
        msg: issue.message,
        type: typeof issue.params?.type === 'string' ? issue.params.type : 'value_error',
      }
    default:
      return { msg: issue.message, type: 'value_error' }
  }
}

const TYPE_FAULTS: Readonly<Record<string, Fault>> = { ...WRONG_TYPE, record: WRONG_TYPE.object }

function valueAt(input: unknown, path: readonly (string | number)[]): unknown {
  let value = input
  for (const step of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return undefined
    value = (value as Readonly<Record<string | number, unknown>>)[step]
  }
  return value
}
