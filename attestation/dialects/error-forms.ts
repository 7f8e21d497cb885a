import type { JsonObject } from '../json/value.ts'

/** An error, before it has the form of a dialect. */
type DialectError = {
  /** HTTP status, as the clients of the dialect receive it. */
  readonly status: number
  readonly code: string
  readonly message: string
  /** OpenAI's type of the error, or the provider's own. */
  readonly type?: string
  /** The request's member that caused the error. Null or absent: no single member caused it. */
  readonly param?: string | null
  /** The provider's own code. */
  readonly provider_code?: string
  /** The enclave's signed statement that it made nothing. */
  readonly refusal?: JsonObject
}

/** OpenAI's form. A provider's own code replaces ours, since agents act on it. */
export function openAiError(error: Omit<DialectError, 'status'>): { readonly error: JsonObject } {
  const { message, type = 'server_error', param = null, code, provider_code, refusal } = error
  const more: JsonObject = refusal === undefined ? {} : { refusal }
  return { error: { message, type, param, code: provider_code ?? code, ...more } }
}

/**
 * Returns the status that agents receive for a refused request. Agents repeat a request several
 * times after a 404, 422 or 429, and never after a 400. Only a missing path or object is a 404.
 */
export function agentStatusOf({ status, code }: Pick<DialectError, 'status' | 'code'>): number {
  return status === 422 || (status === 404 && code !== 'not_found') ? 400 : status
}

/**
 * Returns the status that Anthropic's clients receive. They repeat a call after 529, or go to
 * another model, so 529 is sent only when a retry can help.
 */
export function anthropicStatusOf(error: {
  readonly status: number
  readonly code: string
  readonly shouldRetry: boolean
  readonly providerStatus: number | null
}): number {
  const { code, shouldRetry, providerStatus } = error
  if (code === 'insufficient_quota') return 402
  const status = agentStatusOf(error)
  if (status === 503 || (status === 502 && providerStatus === 529)) return shouldRetry ? 529 : 500
  return status === 502 ? 500 : status
}

/** The status of an error of this type in Anthropic's form. Null for another type. */
export function statusOfType(type: string): number | null {
  const [status] = Object.entries(ANTHROPIC_TYPES).find(([, known]) => known === type) ?? []
  return status === undefined ? null : Number(status)
}

/** Anthropic's form, with our `code` added. */
export function anthropicError({
  status,
  code,
  message,
  param,
  refusal,
}: DialectError): JsonObject {
  const type = ANTHROPIC_TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error')
  const more: JsonObject = refusal === undefined ? {} : { refusal }
  const error = { type, message, code, ...more }
  const shown = param === 'thread' ? { ...error, details: THREAD_UNSUPPORTED } : error
  return { type: 'error', error: shown }
}

/** Source: https://docs.anthropic.com/en/api/errors */
const ANTHROPIC_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
  529: 'overloaded_error',
}

/** These details make Anthropic's tool runner send the whole conversation in each call. */
const THREAD_UNSUPPORTED: JsonObject = {
  error_code: 'thread_unsupported_request',
  unsupported: ['verification'],
}
