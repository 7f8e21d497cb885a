import type { JsonObject } from '../../attestation/json/value.ts'
import { mediaBytesOf } from './usage-claim.ts'

/** What a parser of ours adds around a request in its frame, at most: id, member names and brackets. */
const ENVELOPE_BYTES = 256

/** A chat frame but for its id, written once however often the call is retried. */
export type ChatFrame = {
  /** Size of the request, UTF-8, without the pictures and sounds in it. */
  readonly bytes: number
  /** Size of the frame, UTF-8; at most a few bytes less. */
  readonly frameBytes: number
  /** `traceparent`: W3C trace context, for a node that asked for it. */
  readonly frameOf: (id: string, traceparent: string | null) => string
}

/** Writes the frame that asks a node for a chat completion. */
export function chatFrame(model: string, request: JsonObject): ChatFrame {
  const text = JSON.stringify(request)
  const rest = `,"model":${JSON.stringify(model)},"chat_request":${text}}`
  return {
    bytes: Math.max(0, Buffer.byteLength(text) - mediaBytesOf(request)),
    frameBytes: Buffer.byteLength(rest) + ENVELOPE_BYTES,
    frameOf: (id, traceparent) =>
      traceparent === null
        ? `{"id":${JSON.stringify(id)}${rest}`
        : `{"id":${JSON.stringify(id)},"traceparent":${JSON.stringify(traceparent)}${rest}`,
  }
}
