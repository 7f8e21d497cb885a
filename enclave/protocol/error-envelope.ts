import type { SignedRefusal } from '#attestation/refusal.ts'
import type { RequestFault } from './request-faults.ts'

/** The answer for an error code: its status, and advice to clients about retries. */
export type ErrorRule = {
  readonly status: number
  /** Sent as `retry-after`, seconds. */
  readonly retryAfterSeconds?: number
  /** Sent as `x-should-retry`, which the official SDKs obey. False: clients should not retry. */
  readonly shouldRetry?: false
  /** The request's member that caused the error. */
  readonly param?: string
}

/** Facts about one answer, besides code and message, that are not in the rule for its code. */
export type ErrorDetails = {
  /** Replaces the rule's status. */
  readonly status?: number | undefined
  /** Replaces the rule's waiting time. */
  readonly retryAfterSeconds?: number | undefined
  /** False: a retry does not help, even if the rule allows it. */
  readonly shouldRetry?: false | undefined
  /** The provider's own status, code, type and param. */
  readonly providerStatus?: number | undefined
  readonly providerCode?: string | undefined
  readonly providerType?: string | undefined
  readonly providerParam?: string | undefined
  /** True if the provider stated the error in a stream. */
  readonly isInStream?: boolean | undefined
  /** The enclave's signed statement that it made nothing. */
  readonly refusal?: SignedRefusal | undefined
}

export type ErrorFacts = {
  readonly status: number
  readonly retryAfterSeconds: number | null
  readonly shouldRetry: boolean
  readonly providerStatus: number | null
  readonly providerCode: string | null
  readonly providerType: string | null
  /** The request's member that caused the error. Null if no single member caused it. */
  readonly param: string | null
  readonly refusal: SignedRefusal | null
}

export function errorFacts(rule: ErrorRule, details: ErrorDetails): ErrorFacts {
  return {
    status: details.status ?? rule.status,
    retryAfterSeconds: details.retryAfterSeconds ?? rule.retryAfterSeconds ?? null,
    shouldRetry: (details.shouldRetry ?? rule.shouldRetry) !== false,
    providerStatus: details.providerStatus ?? null,
    providerCode: details.providerCode ?? null,
    providerType: details.providerType ?? null,
    param: details.providerParam ?? rule.param ?? null,
    refusal: details.refusal ?? null,
  }
}

/**
 * Longest wait that an answer states, seconds. OpenAI's SDKs respect waits below a minute (some: up
 * to a minute). They ignore longer waits and would retry within a second.
 */
export const RETRY_SECONDS_MAX = 59

/** The possible values of `error.type`, except a provider's own. */
export const ERROR_TYPES = [
  'invalid_request_error',
  'authentication_error',
  'permission_error',
  'rate_limit_error',
  'server_error',
] as const
type ErrorType = (typeof ERROR_TYPES)[number]

/** The error `type` that OpenAI's API uses for this status. */
function errorTypeOf(status: number): ErrorType {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  return status < 500 ? 'invalid_request_error' : 'server_error'
}

/**
 * Returns the JSON text of the error envelope (interface, part 7). A stream's `event: error` has
 * the same text. `type` and `param` are as in OpenAI's API. OpenAI's SDKs show `message` only if it
 * is in an `error` object.
 */
export function errorEnvelope(
  error: Pick<ErrorFacts, 'status' | 'param' | 'providerCode' | 'providerType' | 'refusal'> & {
    readonly code: string
    readonly message: string
  },
): string {
  const { status, code, message, providerCode, providerType, param, refusal } = error
  const type = providerType ?? errorTypeOf(status)
  const more = {
    ...(providerCode === null ? {} : { provider_code: providerCode }),
    ...(refusal === null ? {} : { refusal }),
  }
  return JSON.stringify({
    response: 'NOK',
    error: { status_code: status, code, message, type, param, ...more },
  })
}

/** Code for a request that fails validation. Its answer is validationEnvelope. */
export const VALIDATION_CODE = 'validation_failed'

/**
 * Returns the JSON text of a 422 answer: `detail` in the interface's form, and `error` with the
 * first fault in OpenAI's form.
 */
export function validationEnvelope(detail: readonly RequestFault[]): string {
  const [first, ...others] = detail
  const param = first === undefined ? '' : first.loc.slice(1).join('.')
  const place = first === undefined ? 'request' : first.loc.join('.')
  const more = others.length === 0 ? '' : ` (and ${others.length} more: see detail)`
  const message = `${place}: ${first?.msg ?? 'The request fails validation'}${more}`
  const type: ErrorType = 'invalid_request_error'
  return JSON.stringify({
    detail,
    error: { message, type, param: param === '' ? null : param, code: VALIDATION_CODE },
  })
}
