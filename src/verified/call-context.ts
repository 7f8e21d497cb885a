import { CONTEXT_BYTES_MAX } from '#enclave/protocol/enclave-api.ts'

/** Sent to the enclave with the call, and returned with the completion. */
export type CallContext = {
  /** The account of the API key, uuid. */
  readonly accountId: string
  /** The header `x-request-id` of the call. */
  readonly requestId: string
  /**
   * uuid of one attempt of a call with an Idempotency-Key. The call's record is found by this id.
   * Absent without an Idempotency-Key.
   */
  readonly callId?: string
}

/** Throws RangeError when the text is longer than the enclave accepts. */
export function encodeCallContext(context: CallContext): string {
  const { accountId, requestId, callId } = context
  const call = callId === undefined ? {} : { call_id: callId }
  const text = JSON.stringify({ account_id: accountId, request_id: requestId, ...call })
  if (Buffer.byteLength(text) > CONTEXT_BYTES_MAX)
    throw new RangeError(`expected a context of at most ${CONTEXT_BYTES_MAX} bytes`)
  return text
}

/**
 * Returns null for a text that encodeCallContext did not write. A completion with this text is
 * stored without an account.
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
