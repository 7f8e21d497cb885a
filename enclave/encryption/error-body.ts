import { CALL_ERROR_RULES, type CallErrorCode, callErrorOf } from '../protocol/call-errors.ts'
import type { EnclaveFault, EncryptedHead } from '../protocol/enclave-api.ts'
import {
  type ErrorDetails,
  errorEnvelope,
  errorFacts,
  RETRY_SECONDS_MAX,
  validationEnvelope,
} from '../protocol/error-envelope.ts'
import type { RequestFault } from '../protocol/request-faults.ts'

/** An error for the caller of an encrypted call, in the same envelope as for other calls. */
export type ErrorAnswer = { readonly head: EncryptedHead; readonly body: string }

/** `isOperators` has the same meaning as in callErrorOf. */
export function answerFault(fault: EnclaveFault, isOperators: boolean): ErrorAnswer {
  const error = callErrorOf(fault, isOperators)
  return 'fault' in error ? answerInvalid([error.fault]) : answerError(error)
}

/** In a stream, the body is the data of `event: error`. */
export function answerError(error: {
  readonly code: CallErrorCode
  readonly message: string
  readonly details?: ErrorDetails
}): ErrorAnswer {
  const { code, message, details = {} } = error
  const facts = errorFacts(CALL_ERROR_RULES[code], details)
  const { status, shouldRetry, retryAfterSeconds: wait } = facts
  return {
    head: {
      status,
      content_type: 'application/json',
      retry_after_seconds: wait === null ? null : Math.min(wait, RETRY_SECONDS_MAX),
      should_retry: shouldRetry,
    },
    body: errorEnvelope({ code, message, ...facts }),
  }
}

export function answerInvalid(faults: readonly RequestFault[]): ErrorAnswer {
  return {
    head: {
      status: 422,
      content_type: 'application/json',
      retry_after_seconds: null,
      should_retry: true,
    },
    body: validationEnvelope(faults),
  }
}
