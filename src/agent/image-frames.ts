import { type JsonObject, memberOf } from '../../attestation/json/value.ts'
import type { RunFault } from './frames.ts'

/** Largest frame with images that is sent, bytes. Source: what the gateway takes of a node that it asked (src/nodes/limits.ts). */
export const IMAGE_FRAME_BYTES_MAX = 32 * 1024 * 1024

/** What the gateway asks a DIFFUSION node to draw. */
export type ImageRequest = {
  readonly prompt: string
  /** The image to change, base64; null for a new one. */
  readonly image: string | null
  readonly n: number
  /** Width and height, `512x512`. */
  readonly size: string
}

/** Gives what an image frame asks for; null when a member of it is of another kind. */
export function parseImageRequest(frame: JsonObject): ImageRequest | null {
  const [prompt, image, n, size] = ['prompt', 'image', 'n', 'size'].map((name) => memberOf(frame, name))
  const isImage = image === null || image === undefined || typeof image === 'string'
  if (typeof prompt !== 'string' || !isImage || typeof n !== 'number' || typeof size !== 'string') return null
  return { prompt, image: image ?? null, n, size }
}

/** Gives the frame that answers with images, base64. */
export function encodeImages(requestId: string, images: readonly string[]): string {
  return JSON.stringify({ request_id: requestId, images, error: null })
}

/**
 * Gives the frame that answers with an error. Its status goes along where it says more than that;
 * other gateways than ours read `error` alone.
 */
export function encodeImageFailure(
  requestId: string,
  { statusCode, message, retryAfterSeconds }: RunFault,
): string {
  return JSON.stringify({
    ...{ request_id: requestId, images: [], error: message },
    ...(statusCode === 500 ? {} : { status_code: statusCode }),
    ...(typeof retryAfterSeconds === 'number' ? { retry_after: retryAfterSeconds } : {}),
  })
}
