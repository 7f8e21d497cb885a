import type { SignedRefusal } from '#attestation/refusal.ts'
import { CALL_ERROR_RULES } from '#enclave/protocol/call-errors.ts'
import {
  type ErrorDetails,
  type ErrorFacts,
  type ErrorRule,
  errorEnvelope,
  errorFacts,
  RETRY_SECONDS_MAX,
  validationEnvelope,
} from '#enclave/protocol/error-envelope.ts'
import type { RequestFault } from '#enclave/protocol/request-faults.ts'
import { CONTENT_FAULTS, ContentUnavailable, DatabaseAwayError } from '../storage/errors.ts'

/** The only table of error codes and their HTTP statuses. */
export const ERROR_RULES = {
  ...CALL_ERROR_RULES,
  malformed_request: { status: 400 },
  unsupported_request_parameter: { status: 400 },
  /** No node of the model serves the path of the call. */
  unsupported_dialect: { status: 400, param: 'model' },
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
  /** ApiError.retryAfterSeconds may state how long the running call can take. */
  idempotency_in_progress: { status: 409, retryAfterSeconds: 1 },
  idempotency_key_reused: { status: 409, shouldRetry: false },
  /**
   * The call was made, or may have been made, but its whole answer is not known. A retry would make
   * a second call.
   */
  idempotency_outcome_unknown: { status: 409, shouldRetry: false },
  enclave_in_use: { status: 409, shouldRetry: false },
  /** The act is for all processes of the gateway, and the call has reached one of them. */
  one_of_many_processes: { status: 409, shouldRetry: false },
  /** The answer has the form that EHBP requires: `application/problem+json`. */
  unknown_encryption_key: { status: 422 },
  /** The completion's proofs remain. */
  content_erased: { status: 410, shouldRetry: false },
  /** The connection is closed, because the rest of the body would be read as the next call. */
  body_too_slow: { status: 408 },
  unsupported_media_type: { status: 415 },
  /** Agents ask for a WebSocket first. Upon this status they use POST. */
  websocket_not_served: { status: 426, shouldRetry: false },
  rate_limit_exceeded: { status: 429 },
  /** A retry helps only after the budget renews. */
  insufficient_quota: { status: 429, shouldRetry: false },
  headers_too_large: { status: 431 },
  /** The stored encrypted bytes are not the bytes that were written. */
  content_unreadable: { status: 500, shouldRetry: false },
  not_implemented: { status: 501 },
  /** A node's backend refuses the request. ApiError.status is the backend's 4xx, otherwise 502. */
  node_refused: { status: 502 },
  node_error: { status: 502 },
  enclave_unavailable: { status: 503, retryAfterSeconds: 1 },
  no_available_inference_nodes: { status: 503, retryAfterSeconds: 1 },
  /** This gateway does not have the key of the stored content. */
  content_key_missing: { status: 503, shouldRetry: false },
  /** A retry helps only after the operator has configured a provider. */
  search_not_configured: { status: 503, shouldRetry: false },
  image_store_full: { status: 503, retryAfterSeconds: 60 },
  shutting_down: { status: 503, retryAfterSeconds: 1 },
  /**
   * An enclave sealed the completion, but was lost before the completion was stored. The caller can
   * retry, because no caller can get the lost completion.
   */
  completion_lost: { status: 503 },
  enclave_timeout: { status: 504 },
  node_timeout: { status: 504 },
} as const satisfies Readonly<Record<string, ErrorRule>>

export type ErrorCode = keyof typeof ERROR_RULES

/** The statuses of the codes that repeat a status, which a configured service or a node gave. */
export const REPEATED_STATUSES: Readonly<Partial<Record<ErrorCode, readonly number[]>>> = {
  provider_refused: [400, 409, 413, 422, 429],
  node_refused: [400, 422],
}

/** Codes whose cause can be a service that the operator configured. */
export const UPSTREAM_ERRORS = [
  'provider_refused',
  'provider_error',
  'provider_unreachable',
  'provider_key_mismatch',
  'provider_timeout',
  'provider_credential_rejected',
  'answer_too_large',
] as const satisfies readonly ErrorCode[]

/** Codes whose cause can be a contributed node. */
export const NODE_ERRORS = [
  'no_available_inference_nodes',
  'node_refused',
  'node_error',
  'node_timeout',
] as const satisfies readonly ErrorCode[]

type ApiErrorDetails = ErrorDetails & {
  /** True if it is certain that no answer was made. */
  readonly leavesNoResult?: boolean
  /** True if the provider may have made the result. */
  readonly mayBeMade?: boolean
  /** The request's member that caused the error. Replaces `param` in ERROR_RULES. */
  readonly param?: string
  /** Logged, but never shown. */
  readonly cause?: unknown
}

/** `message` is shown to the caller, so it must not contain secrets or internals. */
export class ApiError extends Error implements ErrorFacts {
  override readonly name = 'ApiError'
  readonly code: ErrorCode
  readonly status: number
  readonly retryAfterSeconds: number | null
  readonly shouldRetry: boolean
  readonly providerStatus: number | null
  readonly providerCode: string | null
  readonly providerType: string | null
  readonly param: string | null
  readonly leavesNoResult: boolean
  readonly mayBeMade: boolean
  /** True if the provider stated the error in a stream. */
  readonly isInStream: boolean
  readonly refusal: SignedRefusal | null

  constructor(code: ErrorCode, message: string, details: ApiErrorDetails = {}) {
    super(message, { cause: details.cause })
    this.code = code
    const facts = errorFacts(ERROR_RULES[code], details)
    this.status = facts.status
    this.retryAfterSeconds = facts.retryAfterSeconds
    this.shouldRetry = facts.shouldRetry
    this.providerStatus = facts.providerStatus
    this.providerCode = facts.providerCode
    this.providerType = facts.providerType
    this.param = details.param ?? facts.param
    this.leavesNoResult = details.leavesNoResult ?? false
    this.mayBeMade = details.mayBeMade ?? false
    this.isInStream = details.isInStream ?? false
    this.refusal = facts.refusal
  }
}

/** Answered with 422 and `detail` (interface, part 7). */
export class ValidationError extends Error {
  override readonly name = 'ValidationError'
  readonly detail: readonly RequestFault[]

  constructor(detail: readonly RequestFault[]) {
    super('the request fails validation')
    this.detail = detail
  }
}

/** Returns the error for a member that fits its schema, but cannot be processed. */
export function unfitFor(place: 'body' | 'query', member: string, msg: string): ValidationError {
  return new ValidationError([{ loc: [place, member], msg, type: 'value_error' }])
}

/** The caller left, so no answer can be sent. */
export class CallerLeftError extends Error {
  override readonly name = 'CallerLeftError'

  constructor() {
    super('the caller closed the connection')
  }
}

export type ErrorReply = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** Returns a 500 without details for an unexpected error. The calling code must log this error. */
export function errorReply(error: unknown): ErrorReply {
  if (error instanceof ValidationError)
    return { status: 422, headers: {}, body: validationEnvelope(error.detail) }
  const known = asApiError(error)
  return { status: known.status, headers: headersOf(known), body: errorEnvelope(known) }
}

/**
 * Returns the error that callers may see: the error itself, `not_ready` if the database is
 * unreachable, the error for content that cannot be decrypted, or a 500 without details.
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
 * A thrown value that is not an Error is not shown, because it comes from another package and could
 * contain anything.
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

/** OpenAI's clients read the milliseconds, other clients the seconds. */
export function retryHeaders(retryAfterSeconds: number): Readonly<Record<string, string>> {
  const seconds = Math.min(retryAfterSeconds, RETRY_SECONDS_MAX)
  return {
    'retry-after': String(Math.ceil(seconds)),
    'retry-after-ms': String(Math.ceil(seconds * 1000)),
  }
}
