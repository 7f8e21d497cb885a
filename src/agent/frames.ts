import { isJsonObject, type Json, type JsonObject, memberOf } from '../../attestation/json/value.ts'
import { type ImageRequest, parseImageRequest } from './image-frames.ts'

/**
 * Largest frame that is sent, but for images, bytes. Source: what the gateway takes
 * (src/nodes/limits.ts).
 */
export const FRAME_BYTES_MAX = 1024 * 1024
/** Largest frame that is taken, bytes: what `large-frames` stands for (src/nodes/README.md). */
export const TAKEN_FRAME_BYTES_MAX = 16 * 1024 * 1024
/** Longest id of a request that is answered, characters: the agent echoes it in every frame. */
export const REQUEST_ID_LENGTH_MAX = 256

/** Models that one connection can name: its `Model` and 16 more (src/nodes/README.md). */
export const MODELS_MAX = 17

/** What the gateway sends, as far as the agent understands it. */
export type GatewayFrame =
  | {
      readonly kind: 'chat'
      readonly id: string
      readonly model: string
      readonly request: JsonObject
      /** W3C trace context of the call; null when it is not traced. */
      readonly traceparent: string | null
    }
  /** A chat frame that names its request but cannot be served. */
  | { readonly kind: 'bad_chat'; readonly id: string; readonly message: string }
  /** Asks a DIFFUSION node. */
  | { readonly kind: 'image'; readonly id: string; readonly request: ImageRequest }
  | { readonly kind: 'control'; readonly protocol: string; readonly data: JsonObject }
  | { readonly kind: 'unknown' }

/** Status of a frame to the gateway. */
const RUNNING = 1
const DONE = 2
const FAILED = 3

/** Gives what a text frame says. The text is the gateway's; nothing in it makes this throw. */
export function decodeFrame(text: string): GatewayFrame {
  const frame = parseObject(text)
  if (frame === null) return { kind: 'unknown' }
  const protocol = memberOf(frame, 'protocol')
  const data = memberOf(frame, 'data')
  if (typeof protocol === 'string' && isJsonObject(data)) return { kind: 'control', protocol, data }
  if (Object.hasOwn(frame, 'request_id')) return decodeImageFrame(frame)
  const id = memberOf(frame, 'id')
  if (typeof id !== 'string' || id === '' || id.length > REQUEST_ID_LENGTH_MAX) return { kind: 'unknown' }
  const request = memberOf(frame, 'chat_request')
  if (!isJsonObject(request))
    return { kind: 'bad_chat', id, message: 'expected chat_request to be an object' }
  const model = memberOf(frame, 'model') ?? memberOf(request, 'model')
  if (typeof model !== 'string') return { kind: 'bad_chat', id, message: 'expected model to be a text' }
  const traceparent = memberOf(frame, 'traceparent')
  return {
    kind: 'chat',
    id,
    model,
    request,
    traceparent: typeof traceparent === 'string' ? traceparent : null,
  }
}

/** One that is out of form is not understood: only a faulty gateway sends it. */
function decodeImageFrame(frame: JsonObject): GatewayFrame {
  const id = memberOf(frame, 'request_id')
  const request = parseImageRequest(frame)
  if (typeof id !== 'string' || id === '' || id.length > REQUEST_ID_LENGTH_MAX || request === null)
    return { kind: 'unknown' }
  return { kind: 'image', id, request }
}

/** Gives the frame that carries one chunk of a run. `chunk` is JSON text, which goes out as the backend wrote it. */
export function encodeChunk(requestId: string, chunk: string): string {
  return `{"request_id":${JSON.stringify(requestId)},"error":null,"chunk":${chunk},"status":${RUNNING}}`
}

/** Gives the frame that ends a run in good order. */
export function encodeDone(requestId: string): string {
  return JSON.stringify({ request_id: requestId, error: null, chunk: null, status: DONE })
}

/** What goes wrong with a run. */
export type RunFault = {
  readonly statusCode: number
  readonly message: string
  /** Seconds; null or left out: not told. */
  readonly retryAfterSeconds?: number | null
}

/** Gives the frame that ends a run with an error. */
export function encodeFailure(
  requestId: string,
  { statusCode, message, retryAfterSeconds }: RunFault,
): string {
  const wait = typeof retryAfterSeconds === 'number' ? { retry_after: retryAfterSeconds } : {}
  return JSON.stringify({
    request_id: requestId,
    error: { status_code: statusCode, message, ...wait },
    chunk: null,
    status: FAILED,
  })
}

/** Gives a control frame. */
export function encodeControl(protocol: string, data: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ protocol, data })
}

function parseObject(text: string): JsonObject | null {
  try {
    const value: Json = JSON.parse(text)
    return isJsonObject(value) ? value : null
  } catch {
    return null
  }
}
