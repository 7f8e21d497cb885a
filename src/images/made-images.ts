import { readImageFacts } from './image-facts.ts'
import { IMAGE_BYTES_MAX } from './image-request.ts'
import type { MadeImage } from './image-source.ts'

/**
 * Image in base64, as endpoints and nodes give them; null for what is no image of at most IMAGE_BYTES_MAX. What is kept and served under this
 * service's name has to be one.
 */
export function decodeImage(base64: unknown): Pick<MadeImage, 'bytes' | 'type'> | null {
  if (typeof base64 !== 'string' || base64.length > (IMAGE_BYTES_MAX * 4) / 3 + 4) return null
  const bytes = Buffer.from(base64, 'base64')
  // The decoder passes over what is no base64: then there are fewer bytes than there should be.
  const padding = base64.endsWith('==') ? 2 : base64.endsWith('=') ? 1 : 0
  if (bytes.length < Math.floor(((base64.length - padding) * 3) / 4)) return null
  const facts = readImageFacts(bytes)
  return facts === null ? null : { bytes, type: facts.type }
}
