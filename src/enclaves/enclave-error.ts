import type { EnclaveFault } from '../../enclave/protocol/messages.ts'

export type EnclaveErrorCode =
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
  /** False only where it is certain that no enclave was sent the call, so that another one can be. */
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
 * What to throw for an error of the HTTP client: the reason of an aborted `signal`, else an EnclaveError. The
 * original is not kept as a cause, because a client's errors may carry the request.
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
