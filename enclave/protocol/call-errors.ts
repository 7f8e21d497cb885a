import type { ErrorDetails, ErrorRule } from './error-envelope.ts'
import type { EnclaveFault, EnclaveFaultCode } from './messages.ts'
import type { RequestFault } from './request-faults.ts'

/** Errors that an enclave's fault, or an encrypted call, can be answered with, by their codes. */
export const CALL_ERROR_RULES = {
  /** An encrypted call that its enclave could not open: another context would be needed. */
  bad_ciphertext: { status: 400, shouldRetry: false },
  provider_credential_missing: { status: 403 },
  unsupported_model: { status: 404, param: 'model' },
  /** An encrypted call whose encapsulated key was used before. */
  replayed_call: { status: 409, shouldRetry: false },
  payload_too_large: { status: 413 },
  /** The caller demanded another credential than its call came with, in between. */
  credential_mismatch: { status: 422, param: 'affidavit', shouldRetry: false },
  internal_server_error: { status: 500 },
  /** The provider's own 4xx, with its status; this is what remains of an absurd one. */
  provider_refused: { status: 502 },
  provider_error: { status: 502 },
  provider_unreachable: { status: 502 },
  answer_too_large: { status: 502, shouldRetry: false },
  provider_credential_rejected: { status: 502, shouldRetry: false },
  log_full: { status: 503, retryAfterSeconds: 1 },
  not_ready: { status: 503, retryAfterSeconds: 1 },
  overloaded: { status: 503, retryAfterSeconds: 1 },
  /**
   * Sealed by the enclave, but not stored in time: it will be in the history unless the enclave
   * ends first; a retry pays twice.
   */
  commit_delayed: { status: 503, shouldRetry: false },
  provider_timeout: { status: 504 },
} as const satisfies Readonly<Record<string, ErrorRule>>

export type CallErrorCode = keyof typeof CALL_ERROR_RULES

/** What a caller is answered: an error, or what is wrong with the request. */
export type CallError =
  | { readonly code: CallErrorCode; readonly message: string; readonly details: ErrorDetails }
  | { readonly fault: RequestFault }

/** The code of a caller's answer to a fault, where its request is well-formed. */
export function callerCodeOf(code: EnclaveFaultCode): CallErrorCode {
  if (code === 'too_busy') return 'overloaded'
  if (code === 'provider_mismatch') return 'not_ready'
  return Object.hasOwn(CALL_ERROR_RULES, code) ? (code as CallErrorCode) : 'internal_server_error'
}

/** Words for callers, where those of the fault are for the gateway. */
const WORDS: Readonly<Partial<Record<EnclaveFaultCode, string>>> = {
  too_busy: 'Too many calls at once, try again in a moment',
  provider_mismatch: 'The providers have just changed, try again',
}

/**
 * What the caller is answered for a fault. `isOperators`: the provider was shown the operator's
 * credential, so that its 401 or 403 is the operator's trouble, and its words may name that
 * credential.
 */
export function callErrorOf(fault: EnclaveFault, isOperators: boolean): CallError {
  const { code, status, message, loc = [] } = fault
  if (code === 'invalid_request') {
    if (status === 413) return { code: 'payload_too_large', message, details: {} }
    const place = loc[0] === 'body' ? loc : ['body', ...loc]
    return { fault: { loc: place, msg: message, type: 'value_error' } }
  }
  if (code === 'provider_refused' && isOperators && (status === 401 || status === 403)) {
    const words = "The provider rejected this service's credential"
    return { code: 'provider_credential_rejected', message: words, details: {} }
  }
  const answered = callerCodeOf(code)
  const isInternal = answered === 'internal_server_error'
  const hasStatus = code === 'provider_refused' && status >= 400 && status < 500
  return {
    code: answered,
    message: isInternal ? 'Internal server error' : (WORDS[code] ?? message),
    details: {
      status: hasStatus ? status : undefined,
      providerCode: fault.provider_code,
      retryAfterSeconds: fault.retry_after_seconds,
      shouldRetry: fault.should_retry === false ? false : undefined,
    },
  }
}
