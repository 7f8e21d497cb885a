import { CALL_ERROR_RULES } from '../../enclave/protocol/call-errors.ts'
import {
  type ErrorDetails,
  type ErrorFacts,
  type ErrorRule,
  errorEnvelope,
  errorFacts,
  RETRY_SECONDS_MAX,
  validationEnvelope,
} from '../../enclave/protocol/error-envelope.ts'
import type { RequestFault } from '../../enclave/protocol/request-faults.ts'
import { CONTENT_FAULTS, ContentUnavailable, DatabaseAwayError } from '../storage/errors.ts'

/**
 * Every code that leaves the gateway in the error envelope, and its HTTP status. The only such
 * table.
 */
export const ERROR_RULES = {
  ...CALL_ERROR_RULES,
  malformed_request: { status: 400 },
  unsupported_request_parameter: { status: 400 },
  authorization_missing: { status: 401 },
  invalid_credentials: { status: 401 },
  history_restricted: { status: 403 },
  evidence_restricted: { status: 403 },
  limit_reached: { status: 403 },
  insufficient_scope: { status: 403 },
  account_disabled: { status: 403, shouldRetry: false },
  not_found: { status: 404 },
  method_not_allowed: { status: 405 },
  request_timeout: { status: 408 },
  caller_too_slow: { status: 408, shouldRetry: false },
  /**
   * The call that has this Idempotency-Key is under way: ApiError.retryAfterSeconds may know how
   * long it can last.
   */
  idempotency_in_progress: { status: 409, retryAfterSeconds: 1 },
  idempotency_key_reused: { status: 409, shouldRetry: false },
  /**
   * The call that has this Idempotency-Key was made, or may have been, and its whole answer is not
   * known: another call would be a second one.
   */
  idempotency_outcome_unknown: { status: 409, shouldRetry: false },
  enclave_in_use: { status: 409, shouldRetry: false },
  /** An encrypted call to a key that no enclave has: answered in EHBP's own form. */
  unknown_encryption_key: { status: 422 },
  /** Request and response of this completion were erased; its proofs are still there. */
  content_erased: { status: 410, shouldRetry: false },
  /** The connection ends with it: the rest of the body would be taken for the next call. */
  body_too_slow: { status: 408 },
  unsupported_media_type: { status: 415 },
  rate_limit_exceeded: { status: 429 },
  /** A budget is used up: asking again does not help before it renews. */
  insufficient_quota: { status: 429, shouldRetry: false },
  headers_too_large: { status: 431 },
  /** The bytes that are stored encrypted are not those that were stored. */
  content_unreadable: { status: 500, shouldRetry: false },
  not_implemented: { status: 501 },
  /**
   * A node's backend refuses the request: ApiError.status carries its 4xx; this is what remains
   * without one.
   */
  node_refused: { status: 502 },
  node_error: { status: 502 },
  enclave_unavailable: { status: 503, retryAfterSeconds: 1 },
  no_available_inference_nodes: { status: 503, retryAfterSeconds: 1 },
  /** This gateway was not given the key of content that is stored encrypted. */
  content_key_missing: { status: 503, shouldRetry: false },
  /** The operator chose no search provider: asking again does not help. */
  search_not_configured: { status: 503, shouldRetry: false },
  image_store_full: { status: 503, retryAfterSeconds: 60 },
  shutting_down: { status: 503, retryAfterSeconds: 1 },
  /**
   * Sealed by an enclave that is gone, before it was stored: no caller will ever see it, so asking
   * again is right.
   */
  completion_lost: { status: 503 },
  enclave_timeout: { status: 504 },
  node_timeout: { status: 504 },
} as const satisfies Readonly<Record<string, ErrorRule>>

export type ErrorCode = keyof typeof ERROR_RULES

/** What services that the operator configured may be to blame for. */
export const UPSTREAM_ERRORS = [
  'provider_refused',
  'provider_error',
  'provider_unreachable',
  'provider_timeout',
  'provider_credential_rejected',
  'answer_too_large',
] as const satisfies readonly ErrorCode[]

/** What an error says beyond code and message, where the table does not know it. */
type ApiErrorDetails = ErrorDetails & {
  /** Where it is certain that no answer was made. Any code may have it. */
  readonly leavesNoResult?: boolean
  /** Where the provider may have made what was asked for. Any code may have it. */
  readonly mayBeMade?: boolean
  /** What went wrong behind it: logged, never shown. */
  readonly cause?: unknown
}

/**
 * A refusal that the caller sees: `message` is shown to them, so it holds no secret and no
 * internal.
 */
export class ApiError extends Error implements ErrorFacts {
  override readonly name = 'ApiError'
  readonly code: ErrorCode
  readonly status: number
  readonly retryAfterSeconds: number | null
  readonly shouldRetry: boolean
  readonly providerCode: string | null
  readonly param: string | null
  /** Whether it is certain that no answer was made. False: it is not known. */
  readonly leavesNoResult: boolean
  /**
   * Whether the provider may have made what was asked for, and it is lost. False: it is not known.
   */
  readonly mayBeMade: boolean

  constructor(code: ErrorCode, message: string, details: ApiErrorDetails = {}) {
    super(message, { cause: details.cause })
    this.code = code
    const facts = errorFacts(ERROR_RULES[code], details)
    this.status = facts.status
    this.retryAfterSeconds = facts.retryAfterSeconds
    this.shouldRetry = facts.shouldRetry
    this.providerCode = facts.providerCode
    this.param = facts.param
    this.leavesNoResult = details.leavesNoResult ?? false
    this.mayBeMade = details.mayBeMade ?? false
  }
}

/** A request that fails validation; answered 422 with `detail` (interface, part 7). */
export class ValidationError extends Error {
  override readonly name = 'ValidationError'
  readonly detail: readonly RequestFault[]

  constructor(detail: readonly RequestFault[]) {
    super('the request fails validation')
    this.detail = detail
  }
}

/** The error of a member that its schema takes, and the gateway cannot. */
export function unfitFor(place: 'body' | 'query', member: string, msg: string): ValidationError {
  return new ValidationError([{ loc: [place, member], msg, type: 'value_error' }])
}

/** The caller closed the connection: no answer can be sent. */
export class CallerLeftError extends Error {
  override readonly name = 'CallerLeftError'

  constructor() {
    super('the caller closed the connection')
  }
}

/** An error as the caller sees it. */
type ErrorReply = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** JSON text. */
  readonly body: string
}

/**
 * Answer to any thrown value. An error that is not ours is a 500 without details; the caller of
 * this function logs the error.
 */
export function errorReply(error: unknown): ErrorReply {
  if (error instanceof ValidationError)
    return { status: 422, headers: {}, body: validationEnvelope(error.detail) }
  const known = asApiError(error)
  return { status: known.status, headers: headersOf(known), body: errorEnvelope(known) }
}

/**
 * The error itself when callers may see it, `not_ready` while the database is away, that of content
 * which cannot be decrypted, else a 500 without details.
 */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  if (error instanceof ContentUnavailable)
    return new ApiError(error.code, CONTENT_FAULTS[error.code], { cause: error })
  if (error instanceof DatabaseAwayError)
    return new ApiError('not_ready', 'The stored data cannot be reached at the moment, try again', {
      cause: error,
    })
  return new ApiError('internal_server_error', 'Internal server error')
}

/**
 * The thrown value, if it is an error. Another value, as foreign code may throw, is not shown: it
 * could be anything.
 */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error('not an error')
}

function headersOf(error: ApiError): Readonly<Record<string, string>> {
  const { retryAfterSeconds } = error
  return {
    ...(retryAfterSeconds === null ? {} : retryHeaders(retryAfterSeconds)),
    ...(error.shouldRetry ? {} : { 'x-should-retry': 'false' }),
    ...(error.code === 'authorization_missing' || error.code === 'invalid_credentials'
      ? { 'www-authenticate': 'Bearer' }
      : {}),
  }
}

/** Both headers that clients read; the one in milliseconds is OpenAI's. */
export function retryHeaders(retryAfterSeconds: number): Readonly<Record<string, string>> {
  const seconds = Math.min(retryAfterSeconds, RETRY_SECONDS_MAX)
  return {
    'retry-after': String(Math.ceil(seconds)),
    'retry-after-ms': String(Math.ceil(seconds * 1000)),
  }
}
