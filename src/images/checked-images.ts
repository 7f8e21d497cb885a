import { FormatError } from '../../attestation/errors.ts'
import { fitImage } from './fit-image.ts'
import { readImageFacts } from './image-facts.ts'
import { decodeImage, type MadeImage } from './image-source.ts'
import { checkPngPixels } from './png-pixels.ts'

/** What was asked for. */
export type AskedImages = {
  readonly n: number
  /** Width and height, `512x512`; null for whatever size is drawn. */
  readonly size: string | null
}

/**
 * Shortest and longest edge of an image that a stranger may draw, pixels. Diffusion pipelines draw
 * from 64 (the smallest latent) to 1,536; a larger one would be decoded for nothing.
 */
const DRAWN_EDGE_MIN = 64
export const DRAWN_EDGE_MAX = 2_048

/**
 * The images that a stranger sent in base64, when they are what was asked for: so many, each whole.
 * Throws FormatError. A PNG is checked to its pixel data (`png-pixels.ts`), JPEG and WebP to their
 * last bytes. One of another size is made to fit (`fit-image.ts`), for the public node client draws
 * what its pipeline draws, whatever it is asked for. What they show is not looked at: whether it
 * has to do with the prompt, nobody here can tell.
 */
export async function checkImages(
  images: readonly string[],
  { n, size }: AskedImages,
): Promise<readonly MadeImage[]> {
  if (images.length !== n) throw new FormatError('image_count', `expected ${n} images`)
  const checked: MadeImage[] = []
  // One after another: each may take a few milliseconds of this thread, and others have a turn
  // between.
  for (const base64 of images) checked.push(await checkImage(base64, size))
  return checked
}

async function checkImage(base64: string, size: AskedImages['size']): Promise<MadeImage> {
  const image = decodeImage(base64)
  const facts = image === null ? null : readImageFacts(image.bytes)
  if (image === null || facts === null)
    throw new FormatError('image_type', 'expected PNG, JPEG or WebP images in base64')
  const { width, height } = facts
  if (Math.min(width, height) < DRAWN_EDGE_MIN || Math.max(width, height) > DRAWN_EDGE_MAX)
    throw new FormatError(
      'image_size',
      `expected edges of ${DRAWN_EDGE_MIN} to ${DRAWN_EDGE_MAX} pixels`,
    )
  await checkWhole(image)
  const isFitting = size === null || `${width}x${height}` === size
  const pixelsMax = DRAWN_EDGE_MAX * DRAWN_EDGE_MAX
  const fitted = isFitting ? image : await fitImage(image, { size, pixelsMax })
  return { ...fitted, revisedPrompt: null }
}

async function checkWhole({ bytes, type }: Pick<MadeImage, 'bytes' | 'type'>): Promise<void> {
  if (type === 'png') await checkPngPixels(bytes)
  else if (type === 'jpeg' ? !endsJpeg(bytes) : !endsWebp(bytes))
    throw new FormatError('image_end', 'expected images that are whole, and nothing after')
}

/** The end-of-image marker (ITU T.81, annex B.1.1.3). */
function endsJpeg(bytes: Uint8Array): boolean {
  return bytes.at(-2) === 0xff && bytes.at(-1) === 0xd9
}

const RIFF_HEADER_BYTES = 8

/** The file size in a WebP's header counts from after itself (RFC 9649, section 2.4). */
function endsWebp(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return view.getUint32(4, true) + RIFF_HEADER_BYTES === bytes.length
}
