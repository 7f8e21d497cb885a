import type { Sharp, SharpOptions } from 'sharp'
import { FormatError } from '#attestation/errors.ts'
import { readImageFacts } from './image-facts.ts'
import { decodeImage, type MadeImage } from './image-source.ts'
import { checkPngPixels } from './png-pixels.ts'

export type AskedImages = {
  readonly n: number
  /** `512x512`. Null for any size. */
  readonly size: string | null
}

/** `type` is read from the bytes. */
type Picture = Pick<MadeImage, 'bytes' | 'type'>

/**
 * Minimum and maximum length of an edge, pixels. Diffusion pipelines make images from 64 to 1,536
 * pixels. An untrusted node's larger images are refused before decoding.
 */
const DRAWN_EDGE_MIN = 64
export const DRAWN_EDGE_MAX = 2_048

/**
 * Checks the number of base64 images from an untrusted node, and that each image is complete. The
 * check of a PNG includes its pixel data (`png-pixels.ts`); JPEG and WebP are checked only at their
 * end. Scales an image of another size, because the public node client draws in the size of its
 * pipeline. Throws FormatError. Does not check whether an image matches the prompt.
 */
export async function checkImages(
  images: readonly string[],
  { n, size }: AskedImages,
): Promise<readonly MadeImage[]> {
  if (images.length !== n) throw new FormatError('image_count', `expected ${n} images`)
  const checked: MadeImage[] = []
  // Each check may block this thread for a few milliseconds. Other work runs between two checks.
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
  const fitted = isFitting ? image : await fitImage(image, size)
  return { ...fitted, revisedPrompt: null }
}

async function checkWhole({ bytes, type }: Picture): Promise<void> {
  if (type === 'png') await checkPngPixels(bytes)
  else if (type === 'jpeg' ? !endsJpeg(bytes) : !endsWebp(bytes))
    throw new FormatError('image_end', 'expected images that are whole, and nothing after')
}

/** True if the bytes end with the end-of-image marker (ITU T.81, annex B.1.1.3). */
function endsJpeg(bytes: Uint8Array): boolean {
  return bytes.at(-2) === 0xff && bytes.at(-1) === 0xd9
}

const RIFF_HEADER_BYTES = 8

/**
 * The size in a WebP's header counts only the bytes after the size field (RFC 9649, section 2.4).
 */
function endsWebp(bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return view.getUint32(4, true) + RIFF_HEADER_BYTES === bytes.length
}

/**
 * Scales the image to cover the size, such as `512x512`, and crops opposite sides equally. The
 * result has the same type and no metadata. Throws FormatError `image_pixels` for an image that
 * cannot be decoded, or the library's own error when its native code is not installed.
 */
async function fitImage({ bytes, type }: Picture, size: string): Promise<Picture> {
  const [width, height] = size.split('x').map(Number)
  decoder ??= loadDecoder()
  const decode = await decoder
  try {
    const fitted = await decode(bytes, {
      limitInputPixels: DRAWN_EDGE_MAX * DRAWN_EDGE_MAX,
      failOn: 'warning',
      sequentialRead: true,
    })
      .resize({ width, height, fit: 'cover' })
      .toFormat(type)
      .toBuffer()
    return { bytes: fitted, type }
  } catch {
    throw new FormatError('image_pixels', 'expected images whose pixels can be decoded')
  }
}

type Decoder = (bytes: Uint8Array, options: SharpOptions) => Sharp

/** Loaded when the first image must be scaled, because the library's native code is optional. */
let decoder: Promise<Decoder> | null = null

async function loadDecoder(): Promise<Decoder> {
  const { default: sharp } = await import('sharp')
  // Each image uses one thread of the pool. Each image is scaled once, so a cache would not help.
  sharp.concurrency(1)
  sharp.cache(false)
  // The bytes are not trusted, so the library may use only the three decoders in this list.
  sharp.block({ operation: ['VipsForeignLoad'] })
  sharp.unblock({
    operation: [
      'VipsForeignLoadPngBuffer',
      'VipsForeignLoadJpegBuffer',
      'VipsForeignLoadWebpBuffer',
    ],
  })
  return sharp
}
