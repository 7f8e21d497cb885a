import type { RequestFault } from './request-faults.ts'

/** How an error code is answered: its status, and what a client should know about trying again. */
export type ErrorRule = {
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

/** What an answer says beyond code and message, where its rule does not know it. */
export type ErrorDetails = {
  /** Instead of the rule's. */
  readonly status?: number | undefined
  /** Instead of the rule's. */
  readonly retryAfterSeconds?: number | undefined
  /** Where no retry can help, even if the rule allows it. */
  readonly shouldRetry?: false | undefined
  /** The provider's own error code. */
  readonly providerCode?: string | undefined
}

/** What an answer says beside code and message, by the rule and what is known of this one. */
export type ErrorFacts = {
  readonly status: number
  readonly retryAfterSeconds: number | null
  readonly shouldRetry: boolean
  readonly providerCode: string | null
  /** Member of the request that it is about; null for none in particular. */
  readonly param: string | null
}

export function errorFacts(rule: ErrorRule, details: ErrorDetails): ErrorFacts {
  return {
    status: details.status ?? rule.status,
    retryAfterSeconds: details.retryAfterSeconds ?? rule.retryAfterSeconds ?? null,
    shouldRetry: (details.shouldRetry ?? rule.shouldRetry) !== false,
    providerCode: details.providerCode ?? null,
    param: rule.param ?? null,
  }
}

/**
 * Longest wait that an answer names, seconds. OpenAI's SDKs honour less than a minute, some a
 * minute too, and take a longer wait for none: they would try again within a second.
 */
export const RETRY_SECONDS_MAX = 59

/** What `error.type` may be. */
export const ERROR_TYPES = [
  'invalid_request_error',
  'authentication_error',
  'permission_error',
  'rate_limit_error',
  'server_error',
] as const
type ErrorType = (typeof ERROR_TYPES)[number]

/** The `type` that OpenAI's API has for errors of a status. */
function errorTypeOf(status: number): ErrorType {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  return status < 500 ? 'invalid_request_error' : 'server_error'
}

/**
 * JSON text of the error envelope (interface, part 7); also the data of a stream's `event: error`.
 * `type` and `param` are OpenAI's: its SDKs, and what is built on them, show `message` only of an
 * `error` object.
 */
export function errorEnvelope(
  error: Pick<ErrorFacts, 'status' | 'param' | 'providerCode'> & {
    readonly code: string
    readonly message: string
  },
): string {
  const { status, code, message, providerCode, param } = error
  const more = providerCode === null ? {} : { provider_code: providerCode }
  return JSON.stringify({
    response: 'NOK',
    error: { status_code: status, code, message, type: errorTypeOf(status), param, ...more },
  })
}

/** Code of a request that fails validation, whose answer is validationEnvelope. */
export const VALIDATION_CODE = 'validation_failed'

/**
 * JSON text of a 422. `detail` is the interface's; `error` repeats the first fault for readers of
 * OpenAI's form.
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
