import { type ImageType, readImageFacts } from './image-facts.ts'
import { type EditRequest, type GenerationRequest, IMAGE_BYTES_MAX } from './image-request.ts'

/** An image that was made, and checked, from any source. */
export type MadeImage = {
  readonly bytes: Uint8Array
  readonly type: ImageType
  /** The prompt that was used instead of the caller's; null when none is known of. */
  readonly revisedPrompt: string | null
}

export type ImageJob =
  | { readonly kind: 'generation'; readonly request: GenerationRequest }
  | { readonly kind: 'edit'; readonly request: EditRequest }

export type ImageCall = {
  readonly job: ImageJob
  /** Who calls, for the record of what a node served. */
  readonly accountId: string
  /** Aborted, with the error to throw, when the caller leaves or the gateway stops. */
  readonly signal: AbortSignal
  /**
   * Counts bytes that are held for this call; throws ApiError `overloaded` when all calls hold too
   * much.
   */
  readonly reserve: (bytes: number) => void
}

/** What makes images: a service that the operator configured, or nodes. */
export type ImageSource = {
  /** Models that it can be asked for now. */
  models(): readonly string[]
  /** Whether it can be asked for this now. */
  serves(job: ImageJob): boolean
  /** Whether the model is one of its own, which it may not be able to serve now. */
  knows(model: string): boolean
  /** As many images as asked for. Throws ApiError and the signal's reason. */
  make(call: ImageCall): Promise<readonly MadeImage[]>
}

/**
 * Image in base64, as endpoints and nodes give them; null for anything else, and over
 * IMAGE_BYTES_MAX. What is kept and served under this service's name must be an image.
 */
export function decodeImage(base64: unknown): Pick<MadeImage, 'bytes' | 'type'> | null {
  if (typeof base64 !== 'string' || base64.length > (IMAGE_BYTES_MAX * 4) / 3 + 4) return null
  const bytes = Buffer.from(base64, 'base64')
  // The decoder passes over characters that are not base64: then there are fewer bytes than there
  // should be.
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0
  if (bytes.length < Math.floor(((base64.length - padding) * 3) / 4)) return null
  const facts = readImageFacts(bytes)
  return facts === null ? null : { bytes, type: facts.type }
}
