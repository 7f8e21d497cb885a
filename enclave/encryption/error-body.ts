import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import {
  agentStatusOf,
  anthropicError,
  anthropicStatusOf,
  openAiError,
} from '#attestation/dialects/error-forms.ts'
import type { JsonObject } from '#attestation/json/value.ts'
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

/** An error for the caller of an encrypted call, in the same form as for other calls. */
export type ErrorAnswer = {
  readonly head: EncryptedHead
  readonly body: string
  readonly providerStatus: number | null
}

/** `isOperators` has the same meaning as in callErrorOf. */
export function answerFault(fault: EnclaveFault, isOperators: boolean): ErrorAnswer {
  const error = callErrorOf(fault, isOperators)
  return 'fault' in error ? answerInvalid([error.fault]) : answerError(error)
}

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
    providerStatus: facts.providerStatus,
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
    providerStatus: null,
  }
}

/** Gives an error the form and the status that the clients of the dialect expect. */
export function inDialect(dialect: DialectName, answer: ErrorAnswer): ErrorAnswer {
  if (dialect === 'chat') return answer
  const { error } = JSON.parse(answer.body)
  const { head, providerStatus } = answer
  const { status: given, should_retry: shouldRetry } = head
  const isMessages = dialect === 'messages'
  const status = isMessages
    ? anthropicStatusOf({ code: error.code, status: given, shouldRetry, providerStatus })
    : agentStatusOf({ status: given, code: error.code })
  const formed = isMessages ? anthropicError({ ...error, status }) : openAiError(error)
  return { ...answer, head: { ...head, status }, body: JSON.stringify(formed) }
}

/**
 * The event that ends a stream with an error. `body`: the error in the form of the dialect.
 * `soFar`: the number of events that the caller has received, and the answer from them.
 */
export function errorEvent(
  dialect: DialectName,
  body: string,
  soFar: { readonly events: number; readonly response: JsonObject },
): string {
  if (dialect !== 'responses') return `event: error\ndata: ${body}\n\n`
  const { code, message } = JSON.parse(body).error
  const failed = { status: 'failed', error: { code, message } }
  const { events, response: given } = soFar
  // OpenAI's SDK hides an error that comes before response.created.
  const begun = events > 0 ? given : startedResponse()
  const start = events > 0 ? '' : responseEvent('response.created', 0, begun)
  const response = { object: 'response', output: [], ...begun, ...failed }
  return `${start}${responseEvent('response.failed', Math.max(1, events), response)}`
}

function startedResponse(): JsonObject {
  const created = Math.floor(Date.now() / 1000)
  const id = `resp_${crypto.randomUUID().replaceAll('-', '')}`
  return { id, object: 'response', created_at: created, status: 'in_progress', output: [] }
}

function responseEvent(type: string, sequence: number, response: JsonObject): string {
  const data = { type, sequence_number: sequence, response }
  return `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`
}
