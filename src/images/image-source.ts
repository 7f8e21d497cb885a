import { type ImageType, readImageFacts } from './image-facts.ts'
import { type EditRequest, type GenerationRequest, IMAGE_BYTES_MAX } from './image-request.ts'

/** An image that was already checked. */
export type MadeImage = {
  readonly bytes: Uint8Array
  readonly type: ImageType
  /**
   * The prompt that the source used instead of the caller's. Null: the source reports no such
   * prompt.
   */
  readonly revisedPrompt: string | null
}

export type ImageJob =
  | { readonly kind: 'generation'; readonly request: GenerationRequest }
  | { readonly kind: 'edit'; readonly request: EditRequest }

export type ImageCall = {
  readonly job: ImageJob
  /** For the record of calls that nodes served. */
  readonly accountId: string
  /** Aborted when the caller leaves or the gateway stops. Its reason is the error to throw. */
  readonly signal: AbortSignal
  /**
   * Counts bytes that this call holds. Throws ApiError `overloaded` when all calls together hold
   * too much.
   */
  readonly reserve: (bytes: number) => void
}

/** A service that the operator configured, or nodes. */
export type ImageSource = {
  /** Models that the source can serve now. */
  models(): readonly string[]
  /** True if the source can serve this job now. */
  serves(job: ImageJob): boolean
  /** True if the source has this model, even if it cannot serve the model now. */
  knows(model: string): boolean
  /** Throws ApiError, or the signal's reason. */
  make(call: ImageCall): Promise<readonly MadeImage[]>
}

/**
 * Null when the bytes are not an image, or are more than IMAGE_BYTES_MAX. The gateway must not
 * serve other kinds of files under its own name.
 */
export function decodeImage(base64: unknown): Pick<MadeImage, 'bytes' | 'type'> | null {
  if (typeof base64 !== 'string' || base64.length > (IMAGE_BYTES_MAX * 4) / 3 + 4) return null
  const bytes = Buffer.from(base64, 'base64')
  // The decoder skips characters that are not base64, and then the result is too short.
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0
  if (bytes.length < Math.floor(((base64.length - padding) * 3) / 4)) return null
  const facts = readImageFacts(bytes)
  return facts === null ? null : { bytes, type: facts.type }
}
