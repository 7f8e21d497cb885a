import { callErrorOf } from '#enclave/protocol/call-errors.ts'
import type { EnclaveFault } from '#enclave/protocol/enclave-api.ts'
import { ApiError, type ErrorCode, ValidationError } from '../api/errors.ts'

type EnclaveErrorCode =
  | 'unavailable' //      no connection, or it broke: the enclave is down or restarting
  | 'timeout' //          connected, but silent for too long
  | 'refused' //          answered with an EnclaveFault, see `fault`
  | 'reply_too_large' //  answered more bytes than the limit
  | 'protocol' //         an answer that does not follow enclave/protocol

/** The message is for operators. */
export class EnclaveError extends Error {
  override readonly name = 'EnclaveError'
  readonly code: EnclaveErrorCode
  readonly fault: EnclaveFault | null
  /** False if the call was certainly not sent. Another enclave can then make the call. */
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
 * Returns the reason of an aborted `signal`, otherwise an EnclaveError. This error has no `cause`,
 * because the HTTP client's error may contain the request.
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

/** `isOperators`: see callErrorOf. */
export function faultErrorOf(
  fault: EnclaveFault,
  isOperators: boolean,
): ApiError | ValidationError {
  const error = callErrorOf(fault, isOperators)
  if ('fault' in error) return new ValidationError([error.fault])
  const mayBeMade = fault.may_be_made === true
  // The provider was not asked yet, or its answer cannot be sealed.
  const leavesNoResult = error.code === 'not_ready' && !mayBeMade
  return new ApiError(error.code, error.message, { ...error.details, mayBeMade, leavesNoResult })
}

/** The caller's error when the enclave could not be asked. */
export function outageErrorOf(error: EnclaveError): ApiError {
  const [code, message] =
    error.fault === null ? OUTAGES[error.code] : describeFault(faultErrorOf(error.fault, true))
  return new ApiError(code, message, { leavesNoResult: !error.wasSent })
}

/** True if the operator needs a log line, because the caller gets only a general message. */
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
