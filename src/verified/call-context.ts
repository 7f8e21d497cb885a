import { CONTEXT_BYTES_MAX } from '../../enclave/protocol/enclave-api.ts'

/**
 * What the gateway must know about a call when the enclave returns its completion. The enclave gets
 * this context with the call and returns it with the completion.
 */
export type CallContext = {
  /** Account of the API key that made the call, uuid. */
  readonly accountId: string
  /** Value of the call's header `x-request-id`. */
  readonly requestId: string
  /**
   * uuid of this attempt of a call with an Idempotency-Key. It identifies the call's record. Absent
   * for a call without a key.
   */
  readonly callId?: string
}

/**
 * Encodes `context` for CompletionCall.context. Throws RangeError when the text is longer than the
 * enclave accepts.
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
 * Parses the context of a SealedCompletion. Returns null if encodeCallContext did not write the
 * text. The completion is then stored without an account.
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
