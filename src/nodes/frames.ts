import type { Json, JsonObject } from '../../attestation/json/value.ts'
import { isJsonObject } from '../../attestation/json/value.ts'

/** What a node reports of a run's end by failure: attacker-controlled, bounded. */
export type NodeFault = {
  readonly statusCode: number
  readonly message: string
  /**
   * After how many seconds the backend wants to be asked again, as our own agent tells; null: not
   * told.
   */
  readonly retryAfterSeconds: number | null
}

/**
 * A frame from a node. `stray`: an object that is no frame of the protocol; ignored, but held against the node.
 * `binary`: no text; closed with 1003.
 * `malformed`: no JSON object, or a control frame out of form; the connection is closed with 1002.
 */
export type NodeFrame =
  | {
      readonly kind: 'run'
      readonly requestId: string
      readonly chunk: JsonObject | null
      readonly fault: NodeFault | null
      /** `none`: an old client, which sends no status. */
      readonly status: 'running' | 'done' | 'failed' | 'none'
    }
  | { readonly kind: 'control'; readonly protocol: string; readonly data: JsonObject }
  | { readonly kind: 'stray' }
  | { readonly kind: 'binary' }
  | { readonly kind: 'malformed'; readonly reason: string }

/** Status codes a node's error may carry; anything else is read as 500. */
export const FAULT_STATUS_CODES: ReadonlySet<number> = new Set([400, 401, 403, 404, 409, 422, 429, 500])

/** Longest message of a node's error that is kept, UTF-16 units. */
export const FAULT_MESSAGE_LENGTH_MAX = 500
export const REQUEST_ID_LENGTH_MAX = 64
export const PROTOCOL_LENGTH_MAX = 64

/** Decodes one text frame. Never throws. Unknown members are ignored, as clients of other versions may send more. */
export function decodeFrame(bytes: Buffer): NodeFrame {
  const value = decodeJson(bytes)
  if (!isJsonObject(value)) return { kind: 'malformed', reason: 'Expected a JSON object' }
  if (typeof value.request_id === 'string') return runFrame(value, value.request_id)
  return value.protocol === undefined ? { kind: 'stray' } : controlFrame(value)
}

/** `JSON.parse` and no reader of ours: one frame per token is the hottest path here, and depth is checked later. */
function decodeJson(bytes: Buffer): Json | undefined {
  try {
    return JSON.parse(bytes.toString('utf8')) as Json
  } catch {
    return undefined
  }
}

function runFrame({ chunk, error, status }: JsonObject, requestId: string): NodeFrame {
  const isChunk = chunk === null || chunk === undefined || isJsonObject(chunk)
  const known = STATUSES.get(status)
  if (requestId.length > REQUEST_ID_LENGTH_MAX || !isChunk || known === undefined) return { kind: 'stray' }
  return { kind: 'run', requestId, chunk: chunk ?? null, fault: faultOf(error), status: known }
}

const STATUSES: ReadonlyMap<Json | undefined, 'running' | 'done' | 'failed' | 'none'> = new Map<
  Json | undefined,
  'running' | 'done' | 'failed' | 'none'
>([
  [1, 'running'],
  [2, 'done'],
  [3, 'failed'],
  [null, 'none'],
  [undefined, 'none'],
])

/** An error of any form is one: a node that says it failed is believed. */
function faultOf(error: Json | undefined): NodeFault | null {
  if (error === null || error === undefined) return null
  if (!isJsonObject(error)) return { statusCode: 500, message: '', retryAfterSeconds: null }
  const { status_code: code, message, retry_after: retryAfter } = error
  return {
    statusCode: statusCodeOf(code) ?? 500,
    message: typeof message === 'string' ? printable(message) : '',
    retryAfterSeconds: retryAfterOf(retryAfter),
  }
}

/** A status that a node may tell; null for what is none. */
export function statusCodeOf(code: Json | undefined): number | null {
  return typeof code === 'number' && FAULT_STATUS_CODES.has(code) ? code : null
}

/** Seconds that a node may ask for, at most a day; null for what is no such number. */
export function retryAfterOf(value: Json | undefined): number | null {
  const isWait = typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
  return isWait ? Math.min(value, RETRY_AFTER_SECONDS_MAX) : null
}

const RETRY_AFTER_SECONDS_MAX = 86_400

/** Attacker-controlled text that may end in a log or an error message: no control characters, no lone surrogates. */
export function printable(text: string): string {
  return text.slice(0, FAULT_MESSAGE_LENGTH_MAX).toWellFormed().replaceAll(/\p{C}/gu, ' ')
}

function controlFrame({ protocol, data }: JsonObject): NodeFrame {
  if (typeof protocol !== 'string' || protocol.length > PROTOCOL_LENGTH_MAX || !isJsonObject(data))
    return { kind: 'malformed', reason: 'Expected a protocol name and its data' }
  return { kind: 'control', protocol, data }
}
