import type { EnclaveFault, EnclaveFaultCode } from './enclave-api.ts'
import type { ErrorDetails, ErrorRule } from './error-envelope.ts'
import type { RequestFault } from './request-faults.ts'

/**
 * The rules, by code, for the errors that report a fault of the enclave or of an encrypted call.
 */
export const CALL_ERROR_RULES = {
  /** The enclave could not decrypt the call: the caller must encrypt it again. */
  bad_ciphertext: { status: 400, shouldRetry: false },
  provider_credential_missing: { status: 403 },
  unsupported_model: { status: 404, param: 'model' },
  /** The encapsulated key of the encrypted call was used before. */
  replayed_call: { status: 409, shouldRetry: false },
  payload_too_large: { status: 413 },
  /** The call did not arrive with the credential that the caller demanded. */
  credential_mismatch: { status: 422, param: 'affidavit', shouldRetry: false },
  /** The caller demanded another enclave. Nothing was sent. */
  notary_mismatch: { status: 422, param: 'affidavit', shouldRetry: false },
  internal_server_error: { status: 500 },
  /** A 4xx from the provider, with the provider's status, or 502 if that status is invalid. */
  provider_refused: { status: 502 },
  provider_error: { status: 502 },
  provider_unreachable: { status: 502 },
  /** The provider's TLS key is not among the demanded keys. Nothing was sent. */
  provider_key_mismatch: { status: 502, shouldRetry: false },
  answer_too_large: { status: 502, shouldRetry: false },
  provider_credential_rejected: { status: 502, shouldRetry: false },
  log_full: { status: 503, retryAfterSeconds: 1 },
  not_ready: { status: 503, retryAfterSeconds: 1 },
  overloaded: { status: 503, retryAfterSeconds: 1 },
  /**
   * The enclave sealed the call, but the gateway did not store it in time. The call will be in the
   * history unless the enclave ends first. The caller would pay for a retry too.
   */
  commit_delayed: { status: 503, shouldRetry: false },
  provider_timeout: { status: 504 },
} as const satisfies Readonly<Record<string, ErrorRule>>

export type CallErrorCode = keyof typeof CALL_ERROR_RULES

/** What a caller receives: an error, or a fault in the request. */
type CallError =
  | { readonly code: CallErrorCode; readonly message: string; readonly details: ErrorDetails }
  | { readonly fault: RequestFault }

/** Returns the caller's error code for a fault of the enclave on a well-formed request. */
export function callerCodeOf(code: EnclaveFaultCode): CallErrorCode {
  if (code === 'too_busy') return 'overloaded'
  if (code === 'provider_mismatch') return 'not_ready'
  return Object.hasOwn(CALL_ERROR_RULES, code) ? (code as CallErrorCode) : 'internal_server_error'
}

/** Messages for callers, instead of messages that are meant for the gateway. */
const WORDS: Readonly<Partial<Record<EnclaveFaultCode, string>>> = {
  too_busy: 'Too many calls at once, try again in a moment',
  provider_mismatch: 'The providers have just changed, try again',
}

/**
 * Returns the answer to the caller for a fault. `isOperators`: the provider received the operator's
 * credential. Then a 401 or 403 is the operator's problem, and the provider's message can contain
 * that credential.
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
      providerStatus: fault.provider_status,
      providerCode: fault.provider_code,
      providerType: fault.provider_type,
      providerParam: fault.provider_param,
      isInStream: fault.in_stream,
      refusal: fault.refusal,
      retryAfterSeconds: fault.retry_after_seconds,
      shouldRetry: fault.should_retry === false ? false : undefined,
    },
  }
}
