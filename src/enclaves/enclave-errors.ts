import type { EnclaveFault } from '../../enclave/protocol/messages.ts'
import { ApiError, type ErrorCode, ValidationError } from '../api/errors.ts'

type EnclaveErrorCode =
  | 'unavailable' //      no connection, or it broke before the answer was whole: the enclave is down or restarting
  | 'timeout' //          connected, but silent for too long
  | 'refused' //          answered with an EnclaveFault, see `fault`
  | 'reply_too_large' //  a pull of fewer completions may fit
  | 'protocol' //         answered with something else than enclave/protocol says

/** Why a call to the enclave gave no answer. The messages are for operators, not for callers. */
export class EnclaveError extends Error {
  override readonly name = 'EnclaveError'
  readonly code: EnclaveErrorCode
  readonly fault: EnclaveFault | null
  /**
   * False only where it is certain that no enclave was sent the call, so that another one can be.
   */
  readonly wasSent: boolean

  constructor(
    code: EnclaveErrorCode,
    message: string,
    fault: EnclaveFault | null = null,
    { wasSent = true }: { readonly wasSent?: boolean } = {},
  ) {
    super(message)
    this.code = code
    this.fault = fault
    this.wasSent = wasSent
  }
}

/**
 * What to throw for an error of the HTTP client: the reason of an aborted `signal`, else an
 * EnclaveError. The original is not kept as a cause, because a client's errors may carry the
 * request.
 */
export function enclaveErrorOf(error: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason
  if (error instanceof EnclaveError || !(error instanceof Error)) return error
  const code = codeOf(error)
  if (code.endsWith('_TIMEOUT') && code !== 'UND_ERR_CONNECT_TIMEOUT')
    return new EnclaveError('timeout', `the enclave was silent for too long (${code})`)
  if (code === 'UND_ERR_RES_EXCEEDED_MAX_SIZE')
    return new EnclaveError('reply_too_large', 'the enclave answered more than the limit')
  if (code.startsWith('HPE_') || error.name === 'HTTPParserError')
    return new EnclaveError('protocol', `the enclave answered what is not HTTP (${code})`)
  if (code === '') return error
  const wasSent = !isOfConnecting(error, code)
  return new EnclaveError('unavailable', `the enclave is out of reach (${code})`, null, { wasSent })
}

function isOfConnecting(error: Error, code: string): boolean {
  return code === 'UND_ERR_CONNECT_TIMEOUT' || ('syscall' in error && error.syscall === 'connect')
}

function codeOf(error: Error): string {
  const { code } = error as { readonly code?: unknown }
  return typeof code === 'string' ? code : ''
}

/**
 * What the caller is told of an enclave's fault. `isOperatorCredential`: the provider was shown the
 * operator's key, so that a 401 or 403 of its is the operator's trouble, not the caller's, and its
 * words may name that key.
 */
export function callErrorOf(
  fault: EnclaveFault,
  isOperatorCredential: boolean,
): ApiError | ValidationError {
  const outcome = { mayBeMade: fault.may_be_made === true }
  switch (fault.code) {
    case 'invalid_request':
      return invalidRequest(fault)
    case 'provider_refused':
      return providerRefusal(fault, isOperatorCredential)
    case 'provider_error':
      return new ApiError(fault.code, fault.message, { ...outcome, ...saidBy(fault) })
    case 'unsupported_model':
    case 'credential_mismatch':
    case 'provider_unreachable':
    case 'provider_timeout':
    case 'answer_too_large':
    case 'log_full':
      return new ApiError(fault.code, fault.message, outcome)
    // Before the provider is asked, or when its answer cannot be sealed.
    case 'not_ready':
      return new ApiError(fault.code, fault.message, {
        ...outcome,
        leavesNoResult: !outcome.mayBeMade,
      })
    case 'too_busy':
      return new ApiError('overloaded', 'Too many calls at once, try again in a moment')
    case 'provider_mismatch':
      return new ApiError('not_ready', 'The providers have just changed, try again', {
        leavesNoResult: true,
      })
    case 'bad_ciphertext':
    case 'replayed_call':
      return new ApiError(fault.code, fault.message)
    // Told by whoever answers the call: in a form of EHBP's own.
    case 'unknown_key':
    case 'invalid_call':
    case 'log_conflict':
    case 'internal_error':
      return new ApiError('internal_server_error', 'Internal server error')
  }
}

/** What the caller is told when the enclave could not be asked. */
export function outageErrorOf(error: EnclaveError): ApiError {
  const [code, message] =
    error.fault === null ? OUTAGES[error.code] : describeFault(callErrorOf(error.fault, true))
  return new ApiError(code, message, { leavesNoResult: !error.wasSent })
}

/**
 * Whether an operator should look at what the caller is told only in general: logged with the
 * fault.
 */
export function isOperatorsTrouble(error: ApiError | ValidationError): boolean {
  return (
    error instanceof ApiError &&
    (error.code === 'internal_server_error' || error.code === 'provider_credential_rejected')
  )
}

const OUTAGES: Readonly<Record<EnclaveErrorCode, readonly [ErrorCode, string]>> = {
  unavailable: ['enclave_unavailable', 'The enclave is out of reach, try again in a moment'],
  timeout: ['enclave_timeout', 'The enclave did not answer in time'],
  refused: ['internal_server_error', 'Internal server error'],
  reply_too_large: ['internal_server_error', 'Internal server error'],
  protocol: ['internal_server_error', 'Internal server error'],
}

function describeFault(error: ApiError | ValidationError): readonly [ErrorCode, string] {
  return error instanceof ApiError ? [error.code, error.message] : OUTAGES.protocol
}

function invalidRequest({ status, loc = [], message }: EnclaveFault): ApiError | ValidationError {
  if (status === 413) return new ApiError('payload_too_large', message)
  const place = loc[0] === 'body' ? loc : ['body', ...loc]
  return new ValidationError([{ loc: place, msg: message, type: 'value_error' }])
}

function providerRefusal(fault: EnclaveFault, isOperatorCredential: boolean): ApiError {
  const { status, message } = fault
  if (isOperatorCredential && (status === 401 || status === 403))
    return new ApiError(
      'provider_credential_rejected',
      "The provider rejected this service's credential",
    )
  return new ApiError('provider_refused', message, {
    ...(status >= 400 && status < 500 ? { status } : {}),
    ...saidBy(fault),
  })
}

/** The provider's own code, wait and patience. */
function saidBy(fault: EnclaveFault) {
  const {
    provider_code: providerCode,
    retry_after_seconds: retryAfterSeconds,
    should_retry: shouldRetry,
  } = fault
  return {
    ...(providerCode === undefined ? {} : { providerCode }),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    ...(shouldRetry === false ? { shouldRetry } : {}),
  } as const
}
