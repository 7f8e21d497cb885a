import { z } from 'zod'
import { ValidationError } from '../errors.ts'
import { type FaultPlace, faultDetails } from './fault-details.ts'
import { faultIssue } from './issues.ts'

/** Records of a page when the query does not say, and at most (interface, parts 4 and 8). */
export const HISTORY_LIMIT_DEFAULT = 100
export const HISTORY_LIMIT_MAX = 1000

/** What a caller asks of the history list. */
export type HistoryQuery = {
  readonly limit: number
  /** Id of the last record of the page before, uuid in lower case; null for the newest. */
  readonly cursor: string | null
  readonly filter: 'all' | 'mine'
}

/** Query parameters as a request carries them: a parameter that is repeated is an array. */
export type QueryParameters = Readonly<Record<string, string | readonly string[] | undefined>>

/** History query of `parameters`, defaults filled in; others are ignored. Throws ValidationError. */
export function parseHistoryQuery(parameters: QueryParameters): HistoryQuery {
  return validate('query', historyQuery, parameters)
}

/**
 * Hash of a completion from a path parameter: 64 hex digits of either case, with or without 0x → lower case, without.
 * Throws ValidationError.
 */
export function parseHashParameter(text: string): string {
  return validate('path', hashParameter, { hash: text }).hash
}

/**
 * Nonce of an attestation request, 16 to 64 bytes as lower-case hex without 0x; null when there is none.
 * Throws ValidationError.
 */
export function parseNonceParameter(parameters: QueryParameters): string | null {
  return validate('query', nonceQuery, parameters).nonce ?? null
}

function validate<Output>(place: FaultPlace, schema: z.ZodType<Output>, input: unknown): Output {
  const { data, error } = schema.safeParse(input)
  if (error) throw new ValidationError(faultDetails(place, input, error.issues))
  return data
}

const limit = z
  .string()
  .check(({ value, issues }) => {
    if (!/^[+-]?\d{1,15}$/.test(value))
      issues.push({
        ...faultIssue(
          [],
          'int_parsing',
          'Input should be a valid integer, unable to parse string as an integer',
        ),
        continue: false,
      })
  })
  .transform(Number)
  .pipe(z.int().min(1).max(HISTORY_LIMIT_MAX))

const cursor = patternText(
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  'uuid_parsing',
  'a valid UUID',
).transform((text) => text.toLowerCase())

const historyQuery = z.object({
  limit: limit.default(HISTORY_LIMIT_DEFAULT),
  cursor: cursor.nullable().default(null),
  filter: z.enum(['all', 'mine']).default('mine'),
})

const hashParameter = z.object({ hash: hexText(32, 32, '64 hex digits') })

const nonceQuery = z.object({ nonce: hexText(16, 64, '16 to 64 bytes as hex digits').optional() })

function hexText(bytesMin: number, bytesMax: number, expected: string) {
  const pattern = new RegExp(`^(0x)?([0-9a-f]{2}){${bytesMin},${bytesMax}}$`, 'i')
  return patternText(pattern, 'string_pattern_mismatch', expected).transform((text) =>
    text.toLowerCase().replace(/^0x/, ''),
  )
}

function patternText(pattern: RegExp, type: string, expected: string) {
  return z.string().check(({ value, issues }) => {
    if (!pattern.test(value)) issues.push(faultIssue([], type, `Input should be ${expected}`))
  })
}
