import { CONTENT_FAULTS, ContentUnavailable, DatabaseAwayError } from '../storage/errors.ts'

/** How an error code is answered: its status, and what a client should know about trying again. */
type ErrorRule = {
  readonly status: number
  /** Sent as `retry-after`, seconds. */
  readonly retryAfterSeconds?: number
  /**
   * Sent as `x-should-retry`, which the official SDKs obey: false where a retry costs money and
   * cannot help.
   */
  readonly shouldRetry?: false
  /** Member of the request that it is about. */
  readonly param?: string
}

/**
 * Every code that leaves the gateway in the error envelope, and its HTTP status. The only such
 * table.
 */
export const ERROR_RULES = {
  malformed_request: { status: 400 },
  /** An encrypted call that its enclave could not open: another context would be needed. */
  bad_ciphertext: { status: 400, shouldRetry: false },
  unsupported_request_parameter: { status: 400 },
  authorization_missing: { status: 401 },
  invalid_credentials: { status: 401 },
  provider_credential_missing: { status: 403 },
  history_restricted: { status: 403 },
  evidence_restricted: { status: 403 },
  limit_reached: { status: 403 },
  insufficient_scope: { status: 403 },
  account_disabled: { status: 403, shouldRetry: false },
  not_found: { status: 404 },
  unsupported_model: { status: 404, param: 'model' },
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
   * The call that has this Idempotency-Key was made, or may have been, and there is no whole answer
   * of it: another call would be a second one.
   */
  idempotency_outcome_unknown: { status: 409, shouldRetry: false },
  enclave_in_use: { status: 409, shouldRetry: false },
  /** An encrypted call to a key that no enclave has: told in EHBP's own form. */
  unknown_encryption_key: { status: 422 },
  /** An encrypted call whose encapsulated key was used before. */
  replayed_call: { status: 409, shouldRetry: false },
  /** Request and response of this completion were erased; its proofs are still there. */
  content_erased: { status: 410, shouldRetry: false },
  /** The connection ends with it: the rest of the body would be taken for the next call. */
  body_too_slow: { status: 408 },
  payload_too_large: { status: 413 },
  unsupported_media_type: { status: 415 },
  rate_limit_exceeded: { status: 429 },
  /** The caller demanded another credential than its call came with, in between. */
  credential_mismatch: { status: 422, param: 'affidavit', shouldRetry: false },
  /** A budget is used up: asking again does not help before it renews. */
  insufficient_quota: { status: 429, shouldRetry: false },
  headers_too_large: { status: 431 },
  internal_server_error: { status: 500 },
  /** The bytes that are stored encrypted are not those that were stored. */
  content_unreadable: { status: 500, shouldRetry: false },
  not_implemented: { status: 501 },
  /**
   * The provider's own 4xx: ApiError.status carries which one; this is what remains of an absurd
   * one.
   */
  provider_refused: { status: 502 },
  provider_error: { status: 502 },
  provider_unreachable: { status: 502 },
  /**
   * A node's backend refuses the request: ApiError.status carries its 4xx; this is what remains
   * without one.
   */
  node_refused: { status: 502 },
  node_error: { status: 502 },
  answer_too_large: { status: 502, shouldRetry: false },
  provider_credential_rejected: { status: 502, shouldRetry: false },
  enclave_unavailable: { status: 503, retryAfterSeconds: 1 },
  no_available_inference_nodes: { status: 503, retryAfterSeconds: 1 },
  log_full: { status: 503, retryAfterSeconds: 1 },
  not_ready: { status: 503, retryAfterSeconds: 1 },
  /** This gateway was not given the key of content that is stored encrypted. */
  content_key_missing: { status: 503, shouldRetry: false },
  /** The operator chose no search provider: asking again does not help. */
  search_not_configured: { status: 503, shouldRetry: false },
  image_store_full: { status: 503, retryAfterSeconds: 60 },
  overloaded: { status: 503, retryAfterSeconds: 1 },
  shutting_down: { status: 503, retryAfterSeconds: 1 },
  /**
   * Sealed by an enclave that is gone, before it was stored: nobody will ever see it, so asking
   * again is right.
   */
  completion_lost: { status: 503 },
  /**
   * Sealed by the enclave, but not stored in time: it will be in the history unless the enclave
   * ends first; a retry pays twice.
   */
  commit_delayed: { status: 503, shouldRetry: false },
  provider_timeout: { status: 504 },
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

/** What an answer says beyond code and message, where the table does not know it. */
type ErrorDetails = {
  /** Instead of the table's. */
  readonly status?: number
  /** Instead of the table's. */
  readonly retryAfterSeconds?: number
  /** Where no retry can help, whatever the table says. */
  readonly shouldRetry?: false
  /** The provider's own error code. */
  readonly providerCode?: string
  /** Where it is certain that no answer was made, whatever the code says. */
  readonly leavesNoResult?: boolean
  /** Where the provider may have made what was asked for, whatever the code says. */
  readonly mayBeMade?: boolean
  /** What went wrong behind it: logged, never shown. */
  readonly cause?: unknown
}

/**
 * A refusal the caller is told about: `message` is shown to them, so it holds no secret and no
 * internal.
 */
export class ApiError extends Error {
  override readonly name = 'ApiError'
  readonly code: ErrorCode
  readonly status: number
  readonly retryAfterSeconds: number | null
  readonly shouldRetry: boolean
  readonly providerCode: string | null
  /** Member of the request that it is about; null for none in particular. */
  readonly param: string | null
  /** Whether it is certain that no answer was made. False says nothing. */
  readonly leavesNoResult: boolean
  /** Whether the provider may have made what was asked for, and it is lost. False says nothing. */
  readonly mayBeMade: boolean

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, { cause: details.cause })
    const rule: ErrorRule = ERROR_RULES[code]
    this.code = code
    this.status = details.status ?? rule.status
    this.retryAfterSeconds = details.retryAfterSeconds ?? rule.retryAfterSeconds ?? null
    this.shouldRetry = (details.shouldRetry ?? rule.shouldRetry) !== false
    this.providerCode = details.providerCode ?? null
    this.param = rule.param ?? null
    this.leavesNoResult = details.leavesNoResult ?? false
    this.mayBeMade = details.mayBeMade ?? false
  }
}

/**
 * One fault of a request: where (`['body', 'messages', 0, 'role']`), in words, and a stable type.
 */
export type FaultDetail = {
  readonly loc: readonly (string | number)[]
  readonly msg: string
  readonly type: string
}

/**
 * Code of a request that fails validation, beside its `detail`. No rule of ERROR_RULES: its body is
 * another one.
 */
export const VALIDATION_CODE = 'validation_failed'

/** A request that fails validation; answered 422 with `detail` (interface, part 7). */
export class ValidationError extends Error {
  override readonly name = 'ValidationError'
  readonly detail: readonly FaultDetail[]

  constructor(detail: readonly FaultDetail[]) {
    super('the request fails validation')
    this.detail = detail
  }
}

/** The caller closed the connection: there is nobody left to answer. */
export class CallerLeftError extends Error {
  override readonly name = 'CallerLeftError'

  constructor() {
    super('the caller closed the connection')
  }
}

/** What `error.type` may be. */
export const ERROR_TYPES = [
  'invalid_request_error',
  'authentication_error',
  'permission_error',
  'rate_limit_error',
  'server_error',
] as const
type ErrorType = (typeof ERROR_TYPES)[number]

/** An error as the caller sees it. */
type ErrorReply = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** JSON text. */
  readonly body: string
}

/**
 * Longest wait that is told, seconds. OpenAI's SDKs honour less than a minute, some a minute too,
 * and take a longer wait for none: they would try again within a second.
 */
const RETRY_TOLD_SECONDS_MAX = 59

/**
 * Answer to any thrown value. What is not ours is a 500 that says nothing; whoever calls this logs
 * it.
 */
export function errorReply(error: unknown): ErrorReply {
  if (error instanceof ValidationError)
    return { status: 422, headers: {}, body: JSON.stringify(validationBody(error)) }
  const known = asApiError(error)
  return { status: known.status, headers: headersOf(known), body: errorEnvelope(known) }
}

/**
 * JSON text of the error envelope; also the data of a stream's `event: error`. `type` and `param`
 * are OpenAI's: its SDKs, and what is built on them, show `message` only of an `error` object.
 */
export function errorEnvelope({ status, code, message, providerCode, param }: ApiError): string {
  const more = providerCode === null ? {} : { provider_code: providerCode }
  const error = { status_code: status, code, message, type: errorTypeOf(status), param, ...more }
  return JSON.stringify({ response: 'NOK', error })
}

/** The `type` that OpenAI's API has for errors of a status. */
function errorTypeOf(status: number): ErrorType {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  return status < 500 ? 'invalid_request_error' : 'server_error'
}

/** `detail` is the interface's; `error` repeats the first fault for readers of OpenAI's form. */
function validationBody({ detail }: ValidationError): object {
  const [first, ...others] = detail
  const param = first === undefined ? '' : first.loc.slice(1).join('.')
  const place = first === undefined ? 'request' : first.loc.join('.')
  const more = others.length === 0 ? '' : ` (and ${others.length} more: see detail)`
  const message = `${place}: ${first?.msg ?? 'The request fails validation'}${more}`
  const type: ErrorType = 'invalid_request_error'
  return {
    detail,
    error: { message, type, param: param === '' ? null : param, code: VALIDATION_CODE },
  }
}

/**
 * The error itself when it is one a caller is told about, `not_ready` while the database is away,
 * that of content which cannot be decrypted, else a 500 that says nothing.
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
 * What was thrown, as an error. What is none, as code of others may throw, is not told: it could be
 * anything.
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
  const seconds = Math.min(retryAfterSeconds, RETRY_TOLD_SECONDS_MAX)
  return {
    'retry-after': String(Math.ceil(seconds)),
    'retry-after-ms': String(Math.ceil(seconds * 1000)),
  }
}
