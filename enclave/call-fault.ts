import { type EnclaveFault, FAULT_STATUS } from './protocol/enclave-api.ts'
import { NO_REASON, type Refusal } from './protocol/refusal.ts'

/**
 * The fault of a call without an answer. The message is for the gateway's caller. It may repeat a
 * provider's words, but never a prompt or a credential. It is never logged.
 */
export class CallFault extends Error {
  override readonly name = 'CallFault'
  readonly fault: EnclaveFault

  constructor(
    code: keyof typeof FAULT_STATUS,
    message: string,
    more: Partial<Omit<EnclaveFault, 'code' | 'message'>> = {},
  ) {
    super(message)
    this.fault = { status: FAULT_STATUS[code], code, message, ...more }
  }
}

export function logFull(): CallFault {
  return new CallFault('log_full', 'Too many completions wait to be stored, or are under way.')
}

/** A provider's own 4xx. The provider chose status and text. */
class ProviderRefusal extends Error {
  override readonly name = 'ProviderRefusal'
  readonly fault: EnclaveFault

  constructor(refusal: Omit<EnclaveFault, 'code' | 'loc'>) {
    super(refusal.message)
    this.fault = { ...refusal, code: 'provider_refused' }
  }
}

/** The fault that the gateway receives when a provider answers with 4xx or 5xx. */
export function refusalFault(
  status: number,
  { message, code, retryAfterSeconds, mayRetry }: Refusal,
): ProviderRefusal | CallFault {
  const more = {
    ...(code === null ? {} : { provider_code: code }),
    ...(retryAfterSeconds === null ? {} : { retry_after_seconds: retryAfterSeconds }),
    ...(mayRetry ? {} : { should_retry: false }),
  }
  if (status < 500)
    return new ProviderRefusal({
      status,
      message: `The provider refused the request: ${message ?? NO_REASON}`,
      ...more,
    })
  const words = message === null ? '.' : `: ${message}`
  return new CallFault(
    'provider_error',
    `The provider answered with status ${status}${words}`,
    more,
  )
}

/** The gateway closed the connection or stopped reading: the answer has no reader. */
export class CallerGone extends Error {
  override readonly name = 'CallerGone'
}

/** Converts any error into a fault, without details if the error is unexpected. */
export function faultOf(error: unknown): EnclaveFault {
  if (error instanceof CallFault || error instanceof ProviderRefusal) return error.fault
  return new CallFault('internal_error', 'The enclave failed; its log has more.').fault
}
