import type { EnclaveFault } from '../../enclave/protocol/messages.ts'
import { ApiError, type ErrorCode, ValidationError } from '../api/errors.ts'
import type { EnclaveError, EnclaveErrorCode } from './enclave-error.ts'

/**
 * What the caller is told of an enclave's fault. `isOperatorCredential`: the provider was shown the operator's key, so
 * that a 401 or 403 of its is the operator's trouble, not the caller's, and its words may name that key.
 */
export function callErrorOf(fault: EnclaveFault, isOperatorCredential: boolean): ApiError | ValidationError {
  switch (fault.code) {
    case 'invalid_request':
      return invalidRequest(fault)
    case 'provider_refused':
      return providerRefusal(fault, isOperatorCredential)
    case 'unsupported_model':
    case 'provider_error':
    case 'provider_unreachable':
    case 'provider_timeout':
    case 'answer_too_large':
    case 'log_full':
    case 'not_ready':
      return new ApiError(fault.code, fault.message)
    case 'too_busy':
      return new ApiError('overloaded', 'Too many calls at once, try again in a moment')
    case 'provider_mismatch':
      return new ApiError('not_ready', 'The providers have just changed, try again')
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

/** Whether an operator should look at what the caller is told only in general: logged with the fault. */
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
  const { status, message, provider_code: providerCode, retry_after_seconds: retryAfterSeconds } = fault
  if (isOperatorCredential && (status === 401 || status === 403))
    return new ApiError('provider_credential_rejected', "The provider rejected this service's credential")
  return new ApiError('provider_refused', message, {
    ...(status >= 400 && status < 500 ? { status } : {}),
    ...(providerCode === undefined ? {} : { providerCode }),
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  })
}
