import { CONTEXT_BYTES_MAX } from '../../enclave/protocol/messages.ts'

/**
 * What the gateway remembers of a call through the enclave: handed over with it, handed back with
 * its completion.
 */
export type CallContext = {
  /** Account of the API key that made the call, uuid. */
  readonly accountId: string
  /** The call's `x-request-id`. */
  readonly requestId: string
  /**
   * uuid of this try of a call with an Idempotency-Key, by which its record is found; left out
   * without one.
   */
  readonly callId?: string
}

/**
 * Text of `context` for CompletionCall.context. Throws RangeError when it is longer than the
 * enclave takes.
 */
export function encodeCallContext(context: CallContext): string {
  const { accountId, requestId, callId } = context
  const call = callId === undefined ? {} : { call_id: callId }
  const text = JSON.stringify({ account_id: accountId, request_id: requestId, ...call })
  if (Buffer.byteLength(text) > CONTEXT_BYTES_MAX)
    throw new RangeError(`expected a context of at most ${CONTEXT_BYTES_MAX} bytes`)
  return text
}

/**
 * Context of a SealedCompletion; null for a text that encodeCallContext did not write (a completion
 * that was sealed for some other gateway is still evidence, so it is stored without an account
 * rather than refused).
 */
export function parseCallContext(text: string): CallContext | null {
  const value = readJson(text)
  if (typeof value !== 'object' || value === null) return null
  const {
    account_id: accountId,
    request_id: requestId,
    call_id: callId,
  } = value as Readonly<Record<string, unknown>>
  if (typeof accountId !== 'string' || typeof requestId !== 'string') return null
  return { accountId, requestId, ...(typeof callId === 'string' ? { callId } : {}) }
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
