import { statusOfType } from '#attestation/dialects/error-forms.ts'
import { isJsonObject, type Json, type JsonObject } from '#attestation/json/value.ts'
import type { CallDialect, CallerFault } from '#client/call-dialects.ts'
import { AffidavitError, messageOf } from '#client/errors.ts'
import { RequestRefused } from './request-bodies.ts'

/** The call was made and costs, but its caller gets no answer. */
export class LostCall extends Error {
  override readonly name = 'LostCall'
  readonly code: 'not_kept' | 'stopping'

  constructor(code: 'not_kept' | 'stopping', message: string, options: ErrorOptions = {}) {
    super(message, options)
    this.code = code
  }
}

export const SAY_MADE = 'The call was made: do not repeat it'

export function throwNotKept(cause: unknown): never {
  throw new LostCall(
    'not_kept',
    `The answer passed its checks, but its proof could not be kept: ${messageOf(cause)}. ${SAY_MADE}`,
    { cause },
  )
}

export type CallerError = CallerFault & {
  /** `refused`: a check failed, or the call was lost. */
  readonly verdict: 'refused' | 'error'
  readonly headers: Readonly<Record<string, string>>
}

/** With each repeat, the gateway could choose among answers. */
const NO_REPEAT = { 'x-should-retry': 'false' }

/**
 * Returns the error for the caller. `isAnswered`: the gateway has begun an answer. `isCall`: the
 * request makes a completion. Clients may repeat such a request only if it surely did not reach the
 * gateway.
 */
export function describeFault(
  fault: unknown,
  parts: { readonly form: CallDialect; readonly isCall: boolean; readonly isAnswered: boolean },
): CallerError {
  const { form, isCall, isAnswered } = parts
  const error = (status: number, code: string, message: string, headers = {}): CallerError => {
    const type = status < 500 ? 'invalid_request_error' : 'affidavit'
    return { verdict: 'error', status, type, code, message, headers }
  }
  const refusal = (code: string, message: string): CallerError => {
    const { refusedStatus: status } = form
    return { verdict: 'refused', status, type: 'affidavit', code, message, headers: NO_REPEAT }
  }
  if (fault instanceof RequestRefused)
    return error(fault.status, fault.code, fault.message, fault.headers)
  if (fault instanceof LostCall) return refusal(fault.code, fault.message)
  const isOurs = fault instanceof AffidavitError
  const mayBeMade = isCall && (isAnswered || !(isOurs || isUnconnected(fault)))
  const advice = mayBeMade ? NO_REPEAT : {}
  if (!isOurs) {
    const words = mayBeMade
      ? 'the connection to the gateway broke, which may have made the call'
      : 'the gateway cannot be reached'
    return error(502, 'unreachable', `${words}: ${messageOf(fault)}`, advice)
  }
  const { code, message, checks } = fault
  if (code === 'error_in_answer') return statedError(fault, form)
  if (code === 'invalid_request' || code === 'unsupported_call') return error(400, code, message)
  if (fault.status === undefined) return error(502, code, message, advice)
  if (code === 'no_attested_provider') return refusal(code, message)
  const failed = checks.find(({ outcome }) => outcome === 'failed')
  const check = failed === undefined ? '' : ` at the check "${failed.name}"`
  return refusal(code, `Affidavit refused the answer${check}: ${message}`)
}

/** The system's calls before a connection exists. */
const CONNECTING: ReadonlySet<unknown> = new Set(['connect', 'getaddrinfo'])

/** True if `fetch` failed with this fault before it sent a byte. */
function isUnconnected(fault: unknown): boolean {
  const cause = fault instanceof Error ? fault.cause : undefined
  // Node.js tries several addresses of a host, and gives all their errors.
  const causes: readonly unknown[] = cause instanceof AggregateError ? cause.errors : [cause]
  return causes.every((one) => {
    const { syscall, code } = (one ?? {}) as NodeJS.ErrnoException
    return CONNECTING.has(syscall) || code === 'UND_ERR_CONNECT_TIMEOUT'
  })
}

/** The error that the gateway stated in the place of an answer, in the form of the call's API. */
function statedError({ cause, message }: AffidavitError, form: CallDialect): CallerError {
  const stated = isJsonObject(cause as Json | undefined) ? (cause as JsonObject) : {}
  const textIn = (name: string) => (typeof stated[name] === 'string' ? stated[name] : null)
  const type = textIn('type') ?? 'affidavit'
  const code = textIn('code') ?? 'error_in_answer'
  return {
    verdict: 'refused',
    status: form.statusOf({ status: statusOfType(type) ?? 502, code }),
    type,
    code,
    param: textIn('param'),
    message: textIn('message') ?? message,
    headers: NO_REPEAT,
  }
}
