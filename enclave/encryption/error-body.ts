import type { EnclaveFault, EncryptedHead } from '../protocol/messages.ts'
import type { RequestFault } from './check-request.ts'

/** An error as the caller of an encrypted call is told it: what the gateway tells of plain ones. */
export type ErrorAnswer = { readonly head: EncryptedHead; readonly body: string }

/** Codes of the gateway for faults that have another name there, and their words. */
const TOLD: Readonly<Partial<Record<EnclaveFault['code'], readonly [string, string, number]>>> = {
  too_busy: ['overloaded', 'Too many calls at once, try again in a moment', 503],
  provider_mismatch: ['not_ready', 'The providers have just changed, try again', 503],
  invalid_call: ['internal_server_error', 'Internal server error', 500],
  log_conflict: ['internal_server_error', 'Internal server error', 500],
  internal_error: ['internal_server_error', 'Internal server error', 500],
}

/** Members of a request that a fault is about. */
const PARAMS: Readonly<Record<string, string>> = {
  unsupported_model: 'model',
  credential_mismatch: 'affidavit',
}

/** Faults after which trying again costs money or cannot help. */
const FINAL: ReadonlySet<string> = new Set([
  'answer_too_large',
  'provider_credential_rejected',
  'commit_delayed',
  'credential_mismatch',
])

/** Seconds after which trying again may help, where the provider said none. */
const RETRY_SECONDS = 1

/** Longest wait that is told, seconds: OpenAI's SDKs take a longer one for none. */
const RETRY_SECONDS_MAX = 59

/**
 * Gives the answer of a fault (interface, part 7). `isOperators`: the provider was shown the
 * operator's credential, so that a 401 or 403 of its is not the caller's trouble.
 */
export function answerFault(fault: EnclaveFault, isOperators: boolean): ErrorAnswer {
  const { status, message } = fault
  if (fault.code === 'invalid_request' && status !== 413)
    return answerInvalid([faultOfRequest(fault)])
  if (fault.code === 'invalid_request')
    return answerError({ code: 'payload_too_large', message, status })
  if (fault.code === 'provider_refused' && isOperators && (status === 401 || status === 403))
    return answerError({
      code: 'provider_credential_rejected',
      message: "The provider rejected this service's credential",
      status: 502,
    })
  const [code, words, told] = TOLD[fault.code] ?? [fault.code, message, status]
  return answerError({
    code,
    message: words,
    status: told,
    providerCode: fault.provider_code,
    retryAfterSeconds: fault.retry_after_seconds,
    mayRetry: fault.should_retry,
  })
}

/** The error envelope as text: also the data of a stream's `event: error`. */
export function answerError(error: {
  readonly code: string
  readonly message: string
  readonly status: number
  readonly providerCode?: string | undefined
  readonly retryAfterSeconds?: number | undefined
  readonly mayRetry?: boolean | undefined
}): ErrorAnswer {
  const { code, message, status, providerCode, retryAfterSeconds, mayRetry = true } = error
  const shouldRetry = mayRetry && !FINAL.has(code)
  const wait = retryAfterSeconds ?? (status === 503 && shouldRetry ? RETRY_SECONDS : null)
  return {
    head: {
      status,
      content_type: 'application/json',
      retry_after_seconds: wait === null ? null : Math.min(wait, RETRY_SECONDS_MAX),
      should_retry: shouldRetry,
    },
    body: JSON.stringify({
      response: 'NOK',
      error: {
        ...{ status_code: status, code, message, type: typeOf(status) },
        param: PARAMS[code] ?? null,
        ...(providerCode === undefined ? {} : { provider_code: providerCode }),
      },
    }),
  }
}

/** A 422 with all faults; `error` repeats the first for readers of OpenAI's form. */
export function answerInvalid(faults: readonly RequestFault[]): ErrorAnswer {
  const [first, ...others] = faults
  const { loc = [], msg = '' } = first ?? {}
  const param = loc.slice(1).join('.')
  const more = others.length === 0 ? '' : ` (and ${others.length} more: see detail)`
  return {
    head: {
      ...{ status: 422, content_type: 'application/json' },
      ...{ retry_after_seconds: null, should_retry: true },
    },
    body: JSON.stringify({
      detail: faults,
      error: {
        ...{ message: `${loc.join('.')}: ${msg}${more}`, type: 'invalid_request_error' },
        ...{ param: param === '' ? null : param, code: 'validation_failed' },
      },
    }),
  }
}

function faultOfRequest({ loc = [], message }: EnclaveFault): RequestFault {
  return { loc: loc[0] === 'body' ? loc : ['body', ...loc], msg: message, type: 'value_error' }
}

/** The `type` that OpenAI's API has for errors of a status. */
function typeOf(status: number): string {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  return status < 500 ? 'invalid_request_error' : 'server_error'
}
