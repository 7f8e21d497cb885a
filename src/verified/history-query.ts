import { z } from 'zod'
import {
  hexText,
  integerText,
  patternText,
  type QueryParameters,
  validateParameters,
} from '../api/parameters.ts'

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

/** History query of `parameters`, defaults filled in; others are ignored. Throws ValidationError. */
export function parseHistoryQuery(parameters: QueryParameters): HistoryQuery {
  return validateParameters('query', historyQuery, parameters)
}

/**
 * Hash of a completion from a path parameter: 64 hex digits of either case, with or without 0x → lower case, without.
 * Throws ValidationError.
 */
export function parseHashParameter(text: string): string {
  return validateParameters('path', hashParameter, { hash: text }).hash
}

const cursor = patternText(
  /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
  'uuid_parsing',
  'a valid UUID',
).transform((text) => text.toLowerCase())

/** Query of the history list. */
export const historyQuery = z.object({
  limit: integerText({ min: 1, max: HISTORY_LIMIT_MAX }).default(HISTORY_LIMIT_DEFAULT),
  cursor: cursor.nullable().default(null),
  filter: z.enum(['all', 'mine']).default('mine'),
})

/** Path parameter of one record. */
export const hashParameter = z.object({ hash: hexText(32, 32, '64 hex digits') })
