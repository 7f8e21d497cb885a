import type { FormatError } from '#attestation/errors.ts'
import { type EnclaveFault, type EnclaveFaultCode, FAULT_STATUS } from './protocol/enclave-api.ts'
import { NO_REASON, type Reason, type Refusal } from './protocol/refusal.ts'

/**
 * The fault of a call without an answer. The message is for the gateway's caller. It may repeat a
 * provider's words, but never a prompt or a credential. It is never logged.
 */
export class CallFault extends Error {
  override readonly name = 'CallFault'
  readonly fault: EnclaveFault

  constructor(
    code: EnclaveFaultCode,
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

/** The fault that the gateway receives when a provider answers with 4xx or 5xx. */
export function refusalFault(
  status: number,
  { retryAfterSeconds, mayRetry, ...reason }: Refusal,
): CallFault {
  const words = reason.message === null ? '.' : `: ${reason.message}`
  return reasonedFault(reason, status, {
    message: `The provider answered with status ${status}${words}`,
    ...(retryAfterSeconds === null ? {} : { retry_after_seconds: retryAfterSeconds }),
    ...(mayRetry ? {} : { should_retry: false }),
  })
}

/** The fault for an error that a provider states in an answer with status 200. */
export function statedFault(reason: Reason, more: { readonly in_stream?: true } = {}): CallFault {
  const message = `The provider broke off with an error: ${reason.message ?? NO_REASON}`
  return reasonedFault(reason, reason.status ?? 500, { message, ...more })
}

/** Number of characters of a refused answer that its fault repeats. */
const REFUSED_TEXT_MAX = 200

/** The fault for an answer that readers would understand differently. The provider sent `text`. */
export function refusedFault(
  { code, message }: FormatError,
  { provider, model }: { readonly provider: string; readonly model: string },
  text: string,
): CallFault {
  const start = text.slice(0, REFUSED_TEXT_MAX).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '?')
  const words = `Readers would not understand the answer of ${provider} (model ${model}) alike: ${message}. It sent: ${start}`
  return new CallFault('provider_error', words, { refused_reason: code })
}

function reasonedFault(
  { message: words, code, type, param }: Reason,
  status: number,
  { message, ...more }: Partial<EnclaveFault> & { readonly message: string },
): CallFault {
  const facts = {
    provider_status: status,
    ...(code === null ? {} : { provider_code: code }),
    ...(type === null ? {} : { provider_type: type }),
    ...(param === null ? {} : { provider_param: param }),
    ...more,
  }
  if (status >= 500) return new CallFault('provider_error', message, facts)
  const refused = `The provider refused the request: ${words ?? NO_REASON}`
  return new CallFault('provider_refused', refused, { status, ...facts })
}

/** The gateway closed the connection or stopped reading: the answer has no reader. */
export class CallerGone extends Error {
  override readonly name = 'CallerGone'
}

/** Converts any error into a fault, without details if the error is unexpected. */
export function faultOf(error: unknown): EnclaveFault {
  if (error instanceof CallFault) return error.fault
  return new CallFault('internal_error', 'The enclave failed; its log has more.').fault
}
