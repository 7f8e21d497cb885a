import { z } from 'zod'
import { hexText, integerText, type QueryParameters, validateParameters } from '../api/parameters.ts'

/** Logs, or heads, of a page when the query does not say, and at most. */
export const LOG_LIMIT_DEFAULT = 100
export const LOG_LIMIT_MAX = 1000

/** Records of a page of a log at most, and when the query does not say. */
export const LOG_RECORDS_LIMIT_MAX = 100

/** Positions and sizes in a query go to here: no log has so many leaves. */
export const POSITION_MAX = 999_999_999_999_999

/** A page of logs: those that follow notary `cursor`. */
export type LogsQuery = { readonly limit: number; readonly cursor: string | null }

/** A page of heads: those of more leaves than `cursor`. */
export type HeadsQuery = { readonly limit: number; readonly cursor: number | null }

/** `size` null: the newest committed. */
export type InclusionQuery = { readonly index: number; readonly size: number | null }

/** `to` null: the newest committed. */
export type ConsistencyQuery = { readonly from: number; readonly to: number | null }

/** Leaves from `start` to before `end`; null: the newest committed size. */
export type LeavesQuery = { readonly start: number; readonly end: number | null }

/** Records of leaves from `start` on. */
export type LogRecordsQuery = { readonly start: number; readonly limit: number }

/**
 * Notary of a log from a path parameter: an address of either case, with or without 0x → 0x, lower case. Throws
 * ValidationError.
 */
export function parseNotaryParameter(text: string): string {
  return `0x${validateParameters('path', notaryParameter, { notary: text }).notary}`
}

/** Query of the list of logs: defaults filled in, other parameters ignored. Throws ValidationError, as all that follow. */
export function parseLogsQuery(parameters: QueryParameters): LogsQuery {
  return validateParameters('query', logsQuery, parameters)
}

/** Query of the heads of a log. */
export function parseHeadsQuery(parameters: QueryParameters): HeadsQuery {
  return validateParameters('query', headsQuery, parameters)
}

/** Query of an inclusion proof; that `index` is below `size` is the service's to check. */
export function parseInclusionQuery(parameters: QueryParameters): InclusionQuery {
  return validateParameters('query', inclusionQuery, parameters)
}

/** Query of a consistency proof; that `from` is at most `to` is the service's to check. */
export function parseConsistencyQuery(parameters: QueryParameters): ConsistencyQuery {
  return validateParameters('query', consistencyQuery, parameters)
}

/** Query of leaf hashes. */
export function parseLeavesQuery(parameters: QueryParameters): LeavesQuery {
  return validateParameters('query', leavesQuery, parameters)
}

/** Query of a log's records. */
export function parseLogRecordsQuery(parameters: QueryParameters): LogRecordsQuery {
  return validateParameters('query', recordsQuery, parameters)
}

const address = hexText(20, 20, 'an address, 40 hex digits')
const position = integerText({ min: 0, max: POSITION_MAX })
const newest = position.nullable().default(null)
const limit = integerText({ min: 1, max: LOG_LIMIT_MAX }).default(LOG_LIMIT_DEFAULT)

/** Path parameter of one log. */
export const notaryParameter = z.object({ notary: address })
/** Query of the list of logs. */
export const logsQuery = z.object({
  limit,
  cursor: address
    .transform((text) => `0x${text}`)
    .nullable()
    .default(null),
})
/** Query of the heads of a log. */
export const headsQuery = z.object({ limit, cursor: newest })
/** Query of an inclusion proof. */
export const inclusionQuery = z.object({ index: position, size: newest })
/** Query of a consistency proof. */
export const consistencyQuery = z.object({ from: position, to: newest })
/** Query of leaf hashes. */
export const leavesQuery = z.object({ start: position.default(0), end: newest })
/** Query of a log's records. */
export const recordsQuery = z.object({
  start: position.default(0),
  limit: integerText({ min: 1, max: LOG_RECORDS_LIMIT_MAX }).default(LOG_RECORDS_LIMIT_MAX),
})
