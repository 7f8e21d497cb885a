import { isJsonArray, isJsonObject, type Json } from '../../attestation/json/value.ts'
import {
  decodeFrame,
  type NodeFrame,
  printable,
  REQUEST_ID_LENGTH_MAX,
  retryAfterOf,
  statusCodeOf,
} from './frames.ts'

/** What a DIFFUSION node is asked to draw. */
export type ImageRequest = {
  readonly prompt: string
  /** The image to change, base64; null for a new one. */
  readonly image: string | null
  readonly n: number
  /** Width and height, `512x512`. */
  readonly size: string
}

/** A DIFFUSION node's answer. Attacker-controlled: strings of any kind, and any number. */
export type ImageFrame = {
  readonly kind: 'image'
  readonly requestId: string
  /** Null when it holds no list of strings. */
  readonly images: readonly string[] | null
  /** What went wrong, in the node's words, printable; null: nothing. */
  readonly error: string | null
  /**
   * Status of that, and after how many seconds to come again, as our own agent tells them; null:
   * not told.
   */
  readonly statusCode: number | null
  readonly retryAfterSeconds: number | null
}

/** The frame that asks for images (facts of the public client, Images). The model is the connection's. */
export function imageFrame(requestId: string, { prompt, image, n, size }: ImageRequest): string {
  return JSON.stringify({ request_id: requestId, prompt, image, n, size })
}

/** What JSON adds around prompt and image, at most: id, member names, numbers and brackets. */
const ENVELOPE_BYTES = 256

/** Size of that frame, UTF-8, and at most a few bytes less; without writing it. `imageBytes`: of the image before it is base64. */
export function imageFrameBytes({
  prompt,
  imageBytes,
}: {
  readonly prompt: string
  readonly imageBytes: number
}): number {
  return ENVELOPE_BYTES + Buffer.byteLength(JSON.stringify(prompt)) + Math.ceil(imageBytes / 3) * 4
}

/** Bytes of a large frame that are not inside its strings: ten images, an id and an error have about a hundred. */
export const LARGE_FRAME_STRUCTURE_MAX = 4_096

/**
 * Decodes one text frame of a DIFFUSION node. Never throws. A frame of more than `smallBytesMax` is read only if it is what an
 * answer with images is: few and long strings. 32 MiB of brackets would become 700 MB of objects.
 */
export function decodeImageFrame(bytes: Buffer, smallBytesMax: number): NodeFrame | ImageFrame {
  const isLarge = bytes.length > smallBytesMax
  if (isLarge && !isStringsMostly(bytes))
    return { kind: 'malformed', reason: 'Expected an answer with images' }
  // Base64 has one byte for each character; what else a large frame holds is wrong either way.
  const value = decodeJson(bytes.toString(isLarge ? 'latin1' : 'utf8'))
  if (!isJsonObject(value) || typeof value.request_id !== 'string')
    return isLarge ? { kind: 'malformed', reason: 'Expected a request_id' } : decodeFrame(bytes)
  if (value.request_id.length > REQUEST_ID_LENGTH_MAX) return { kind: 'stray' }
  const { request_id: requestId, images, error, status_code: code, retry_after: retryAfter } = value
  return {
    kind: 'image',
    requestId,
    images: isTexts(images) ? images : null,
    error: error === null || error === undefined ? null : printable(typeof error === 'string' ? error : ''),
    statusCode: statusCodeOf(code),
    retryAfterSeconds: retryAfterOf(retryAfter),
  }
}

function decodeJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json
  } catch {
    return undefined
  }
}

function isTexts(value: Json | undefined): value is readonly string[] {
  return isJsonArray(value) && value.every((item) => typeof item === 'string')
}

const QUOTE = 0x22
const BACKSLASH = 0x5c

/** Whether nearly all of it is inside of strings without quotes in them. One pass, most of it a search for the next quote. */
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
