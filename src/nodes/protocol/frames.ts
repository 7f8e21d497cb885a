import {
  isCount,
  isJsonArray,
  isJsonObject,
  type Json,
  type JsonObject,
} from '#attestation/json/value.ts'
import { RETRY_BELIEVED_SECONDS_MAX } from '#enclave/protocol/refusal.ts'
import { parseKeepingDigits } from '../../runtime/keep-digits.ts'
import { isNodeDialect, type NodeDialect } from './dialects.ts'

/**
 * Frames of runs: requests to a node, and the node's answers. The gateway and the node both write
 * and read them. Source: the public node client (facts), with the extensions in ../README.md. The
 * gateway reads strictly, because an attacker controls a node's frames. A node reads leniently. A
 * reader does not throw for any input.
 */

/**
 * Largest frame in either direction, except answers with images. A chunk has some hundred bytes,
 * with logprobs some thousand.
 */
export const FRAME_BYTES_MAX = 1024 * 1024
/**
 * Largest frame to a node that announced `large-frames`: a body of 10 MiB with pictures, serialised
 * again.
 */
export const LARGE_FRAME_BYTES_MAX = 16 * 1024 * 1024
/** Largest whole answer in a dialect, and largest event of a stream. Both come in pieces. */
export const ANSWER_BYTES_MAX = 16 * 1024 * 1024
/** Largest answer with images: ten images of 1,024 pixels. */
export const IMAGE_FRAME_BYTES_MAX = 32 * 1024 * 1024

/**
 * Status codes that the public client accepts in an error. Any other status is read and written as
 * 500.
 */
export const FAULT_STATUS_CODES: ReadonlySet<number> = new Set([
  400, 401, 403, 404, 409, 422, 429, 500,
])
/** UTF-16 units. */
export const FAULT_MESSAGE_LENGTH_MAX = 500

/** Longest request id that the gateway reads. The gateway's own ids are shorter. */
const REQUEST_ID_LENGTH_MAX = 64
/** Longest id that a node accepts, because the node repeats the id in every frame. */
const ECHOED_ID_LENGTH_MAX = 256
const PROTOCOL_LENGTH_MAX = 64

/** An error that a node reports for a run. The reader makes `message` short and printable. */
export type NodeFault = {
  readonly statusCode: number
  readonly message: string
  /** Only our own agent reports the rest. Seconds until the backend may be asked again. */
  readonly retryAfterSeconds: number | null
  /** The code, the type and the param that the backend states, printable. */
  readonly stated: StatedError
}

export type StatedError = {
  readonly code: string | null
  readonly type: string | null
  readonly param: string | null
  /** True if the error came in a stream with status 200. */
  readonly inStream: boolean
}

export const NOTHING_STATED: StatedError = {
  code: null,
  type: null,
  param: null,
  inStream: false,
}
/** UTF-16 units. */
const STATED_LENGTH_MAX = 100

/** An image request. The model is missing, because a DIFFUSION node's connection has one model. */
export type ImageRequest = {
  readonly prompt: string
  /** The image to change, base64. Null when a new image is requested. */
  readonly image: string | null
  readonly n: number
  /** Width and height, `512x512`. */
  readonly size: string
}

/** An image request as a node reads it. Other gateways may leave the size to the node (null). */
export type AskedImageRequest = Omit<ImageRequest, 'size'> & { readonly size: string | null }

/** Maximum size of a frame without its request: id, member names, numbers and brackets. */
const ENVELOPE_BYTES = 256

/** A chat request as the text of a frame. The text is made once, and each try adds its own id. */
type ChatFrame = {
  /** Size of the request in UTF-8, bytes. */
  readonly requestBytes: number
  /** Upper limit of the frame's size in UTF-8, bytes. The frame may be slightly smaller. */
  readonly frameBytes: number
  /** Encodes the frame. `traceparent`: W3C trace context, for a node that announced its use. */
  readonly frameOf: (id: string, traceparent: string | null) => string
}

/** A null dialect means a chat completion. */
export function chatFrame(
  model: string,
  request: JsonObject,
  dialect: NodeDialect | null = null,
): ChatFrame {
  const text = JSON.stringify(request)
  const named = dialect === null ? '' : `,"dialect":${JSON.stringify(dialect)}`
  const rest = `,"model":${JSON.stringify(model)}${named},"chat_request":${text}}`
  return {
    requestBytes: Buffer.byteLength(text),
    frameBytes: Buffer.byteLength(rest) + ENVELOPE_BYTES,
    frameOf: (id, traceparent) =>
      traceparent === null
        ? `{"id":${JSON.stringify(id)}${rest}`
        : `{"id":${JSON.stringify(id)},"traceparent":${JSON.stringify(traceparent)}${rest}`,
  }
}

export function imageFrame(requestId: string, { prompt, image, n, size }: ImageRequest): string {
  return JSON.stringify({ request_id: requestId, prompt, image, n, size })
}

/** Upper limit of the frame's size in UTF-8, bytes. `imageBytes`: size before base64. */
export function imageFrameBytes({
  prompt,
  imageBytes,
}: {
  readonly prompt: string
  readonly imageBytes: number
}): number {
  return ENVELOPE_BYTES + Buffer.byteLength(JSON.stringify(prompt)) + Math.ceil(imageBytes / 3) * 4
}

/** `unknown`: the node does not understand the frame. */
export type GatewayFrame =
  | {
      readonly kind: 'chat'
      readonly id: string
      readonly model: string
      readonly request: JsonObject
      /** Null for a chat completion. */
      readonly dialect: NodeDialect | null
      /** W3C trace context of the call. Null when the call is not traced. */
      readonly traceparent: string | null
    }
  /** A chat frame that has an id, but cannot be served. */
  | { readonly kind: 'bad_chat'; readonly id: string; readonly message: string }
  /** An image frame that has an id, but cannot be served. */
  | { readonly kind: 'bad_image'; readonly id: string; readonly message: string }
  | { readonly kind: 'image'; readonly id: string; readonly request: AskedImageRequest }
  | { readonly kind: 'control'; readonly protocol: string; readonly data: JsonObject }
  | { readonly kind: 'unknown' }

export function decodeGatewayFrame(text: string): GatewayFrame {
  const frame = parseRequestJson(text)
  if (!isJsonObject(frame)) return { kind: 'unknown' }
  const { protocol, data, id, chat_request: request, dialect = null, traceparent } = frame
  if (typeof protocol === 'string' && isJsonObject(data)) return { kind: 'control', protocol, data }
  if (frame.request_id !== undefined) return decodeImageRequest(frame)
  if (!isEchoedId(id)) return { kind: 'unknown' }
  if (!isJsonObject(request))
    return { kind: 'bad_chat', id, message: 'expected chat_request to be an object' }
  const model = frame.model ?? request.model
  if (typeof model !== 'string')
    return { kind: 'bad_chat', id, message: 'expected model to be a text' }
  if (dialect !== null && !isNodeDialect(dialect))
    return { kind: 'bad_chat', id, message: 'expected an API that this node announced' }
  return {
    kind: 'chat',
    id,
    model,
    request,
    dialect,
    traceparent: typeof traceparent === 'string' ? traceparent : null,
  }
}

function decodeImageRequest({
  request_id: id,
  prompt,
  image = null,
  n,
  size = null,
}: JsonObject): GatewayFrame {
  if (!isEchoedId(id)) return { kind: 'unknown' }
  const isImage = image === null || typeof image === 'string'
  const isSize = size === null || typeof size === 'string'
  if (typeof prompt !== 'string' || !isImage || typeof n !== 'number' || !isSize)
    return { kind: 'bad_image', id, message: 'expected a prompt, an image, n and a size' }
  return { kind: 'image', id, request: { prompt, image, n, size } }
}

function isEchoedId(id: Json | undefined): id is string {
  return typeof id === 'string' && id !== '' && id.length <= ECHOED_ID_LENGTH_MAX
}

const RUNNING = 1
const DONE = 2
const FAILED = 3

/** `chunk` is JSON text, which stays exactly as the backend wrote it. */
export function encodeChunk(requestId: string, chunk: string): string {
  return `{"request_id":${JSON.stringify(requestId)},"error":null,"chunk":${chunk},"status":${RUNNING}}`
}

export function encodeDone(requestId: string): string {
  return JSON.stringify({ request_id: requestId, error: null, chunk: null, status: DONE })
}

export function encodeFailure(requestId: string, fault: SentFault): string {
  const error = {
    status_code: fault.statusCode,
    message: fault.message,
    ...retryAfterMember(fault),
    ...statedMembers(fault.stated ?? NOTHING_STATED),
  }
  return JSON.stringify({ request_id: requestId, error, chunk: null, status: FAILED })
}

function statedMembers({ code, type, param, inStream }: StatedError): JsonObject {
  return {
    ...(code === null ? {} : { code }),
    ...(type === null ? {} : { type }),
    ...(param === null ? {} : { param }),
    ...(inStream ? { in_stream: true } : {}),
  }
}

/** Says that the backend still works on a run, although it has sent nothing new. */
export function encodeWorking(requestId: string): string {
  return encodeChunk(requestId, 'null')
}

/** The images are base64. */
export function encodeImages(requestId: string, images: readonly string[]): string {
  return JSON.stringify({ request_id: requestId, images, error: null })
}

/** Leaves the status out if it is 500. Other gateway implementations read only `error`. */
export function encodeImageFailure(requestId: string, fault: SentFault): string {
  const status = fault.statusCode === 500 ? {} : { status_code: fault.statusCode }
  return JSON.stringify({
    request_id: requestId,
    images: [],
    error: fault.message,
    ...status,
    ...retryAfterMember(fault),
  })
}

type SentFault = Omit<NodeFault, 'retryAfterSeconds' | 'stated'> &
  Partial<Pick<NodeFault, 'retryAfterSeconds' | 'stated'>>

function retryAfterMember({ retryAfterSeconds }: SentFault): { readonly retry_after?: number } {
  return typeof retryAfterSeconds === 'number' ? { retry_after: retryAfterSeconds } : {}
}

export type ChatRunFrame = {
  readonly kind: 'run'
  readonly requestId: string
  readonly chunk: JsonObject | null
  readonly fault: NodeFault | null
  /** `none`: the frame comes from an old client, which sends no status. */
  readonly status: 'running' | 'done' | 'failed' | 'none'
}

/** An answer with images. The number and content of the images are not checked yet. */
export type ImageRunFrame = {
  readonly kind: 'image'
  readonly requestId: string
  /** Null when the answer contains no list of strings. */
  readonly images: readonly string[] | null
  /** Printable. Null: no error. */
  readonly error: string | null
  /** Only our own agent reports the next two values. Null: not reported. */
  readonly statusCode: number | null
  readonly retryAfterSeconds: number | null
}

/**
 * A frame from a node. `stray`: an object that the protocol does not define. The gateway ignores
 * it, but counts it in the node's stray budget. `malformed`: not a JSON object, or a malformed
 * control frame. The gateway then closes the connection with 1002.
 */
export type NodeFrame =
  | ChatRunFrame
  | ImageRunFrame
  | { readonly kind: 'control'; readonly protocol: string; readonly data: JsonObject }
  | { readonly kind: 'stray' }
  | { readonly kind: 'malformed'; readonly reason: string }

/**
 * Reads one text frame from a chat node. Ignores unknown members, which clients of other versions
 * may send. This runs for every token, so it uses `JSON.parse`, which is faster than our own
 * reader. The depth is checked later.
 */
export function decodeNodeFrame(bytes: Buffer): NodeFrame {
  const value = parseJson(bytes.toString('utf8'))
  if (isJsonObject(value) && typeof value.request_id === 'string')
    return runFrame(value, value.request_id)
  return otherFrame(value)
}

/**
 * Maximum number of bytes outside the strings of a large frame. Ten images with an id and an error
 * need about a hundred.
 */
const LARGE_FRAME_STRUCTURE_MAX = 4_096

/**
 * Reads one text frame from a DIFFUSION node. A frame of more than `smallBytesMax` must look like
 * an answer with images: a few long strings. Otherwise 32 MiB of brackets could become 700 MB of
 * objects.
 */
export function decodeImageFrame(bytes: Buffer, smallBytesMax: number): NodeFrame {
  const isLarge = bytes.length > smallBytesMax
  if (isLarge && !isStringsMostly(bytes))
    return { kind: 'malformed', reason: 'Expected an answer with images' }
  // Base64 has one byte per character, so latin1 is enough. Any other content of a large frame is
  // wrong in both encodings.
  const value = parseJson(bytes.toString(isLarge ? 'latin1' : 'utf8'))
  if (!isJsonObject(value) || typeof value.request_id !== 'string')
    return isLarge ? { kind: 'malformed', reason: 'Expected a request_id' } : otherFrame(value)
  const { request_id: requestId, images, error, status_code: code, retry_after: retryAfter } = value
  if (requestId.length > REQUEST_ID_LENGTH_MAX) return { kind: 'stray' }
  return {
    kind: 'image',
    requestId,
    images: isTexts(images) ? images : null,
    error:
      error === null || error === undefined
        ? null
        : printable(typeof error === 'string' ? error : ''),
    statusCode: statusCodeOf(code),
    retryAfterSeconds: retryAfterOf(retryAfter),
  }
}

function runFrame({ chunk, error, status }: JsonObject, requestId: string): NodeFrame {
  const isChunk = chunk === null || chunk === undefined || isJsonObject(chunk)
  const known = STATUSES.get(status)
  if (requestId.length > REQUEST_ID_LENGTH_MAX || !isChunk || known === undefined)
    return { kind: 'stray' }
  return { kind: 'run', requestId, chunk: chunk ?? null, fault: faultOf(error), status: known }
}

const STATUSES: ReadonlyMap<Json | undefined, ChatRunFrame['status']> = new Map<
  Json | undefined,
  ChatRunFrame['status']
>([
  [RUNNING, 'running'],
  [DONE, 'done'],
  [FAILED, 'failed'],
  [null, 'none'],
  [undefined, 'none'],
])

function otherFrame(value: Json | undefined): NodeFrame {
  if (!isJsonObject(value)) return { kind: 'malformed', reason: 'Expected a JSON object' }
  const { protocol, data } = value
  if (protocol === undefined) return { kind: 'stray' }
  if (typeof protocol !== 'string' || protocol.length > PROTOCOL_LENGTH_MAX || !isJsonObject(data))
    return { kind: 'malformed', reason: 'Expected a protocol name and its data' }
  return { kind: 'control', protocol, data }
}

/** Accepts an error of any form: any reported failure means that the run has failed. */
function faultOf(error: Json | undefined): NodeFault | null {
  if (error === null || error === undefined) return null
  if (!isJsonObject(error))
    return { statusCode: 500, message: '', retryAfterSeconds: null, stated: NOTHING_STATED }
  const { status_code: code, message, retry_after: retryAfter } = error
  const wordIn = (name: string) => {
    const word = error[name]
    return typeof word === 'string' && word !== ''
      ? printable(word.slice(0, STATED_LENGTH_MAX))
      : null
  }
  return {
    statusCode: statusCodeOf(code) ?? 500,
    message: typeof message === 'string' ? printable(message) : '',
    retryAfterSeconds: retryAfterOf(retryAfter),
    stated: {
      code: wordIn('code'),
      type: wordIn('type'),
      param: wordIn('param'),
      inStream: error.in_stream === true,
    },
  }
}

function statusCodeOf(code: Json | undefined): number | null {
  return typeof code === 'number' && FAULT_STATUS_CODES.has(code) ? code : null
}

/** Returns seconds, at most a day, because the node chooses the value. Null if it is invalid. */
function retryAfterOf(value: Json | undefined): number | null {
  return isCount(value) ? Math.min(value, RETRY_BELIEVED_SECONDS_MAX) : null
}

/** Makes attacker-controlled text safe for logs and error messages. */
function printable(text: string): string {
  return text.slice(0, FAULT_MESSAGE_LENGTH_MAX).toWellFormed().replaceAll(/\p{C}/gu, ' ')
}

function isTexts(value: Json | undefined): value is readonly string[] {
  return isJsonArray(value) && value.every((item) => typeof item === 'string')
}

const QUOTE = 0x22
const BACKSLASH = 0x5c

/** True if nearly all bytes are in strings that contain no escaped quote. */
function isStringsMostly(bytes: Buffer): boolean {
  let structure = 0
  let at = 0
  while (at < bytes.length) {
    structure++
    if (structure > LARGE_FRAME_STRUCTURE_MAX) return false
    if (bytes[at] === QUOTE) {
      at = bytes.indexOf(QUOTE, at + 1)
      if (at === -1 || bytes[at - 1] === BACKSLASH) return false
    }
    at++
  }
  return true
}

/** Undefined when the text is not JSON. Keeps the digits of integers. */
export function parseRequestJson(text: string): Json | undefined {
  return orUndefined(() => parseKeepingDigits(text))
}

/** Undefined when the text is not JSON. */
export function parseJson(text: string): Json | undefined {
  return orUndefined(() => JSON.parse(text) as Json)
}

function orUndefined(parse: () => Json): Json | undefined {
  try {
    return parse()
  } catch {
    return undefined
  }
}
