import type { Sharp, SharpOptions } from 'sharp'
import { FormatError } from '../../attestation/errors.ts'
import type { ImageType } from './image-facts.ts'

/** An image's bytes, and the kind that they were found to be. */
type Picture = { readonly bytes: Uint8Array; readonly type: ImageType }

type Decoder = (bytes: Uint8Array, options: SharpOptions) => Sharp

/**
 * Loaded with the first image that has to be fitted: its native code is an optional package, which
 * a start does without.
 */
let decoder: Promise<Decoder> | null = null

async function loadDecoder(): Promise<Decoder> {
  const { default: sharp } = await import('sharp')
  // One image at a time has one thread of the pool, and nothing of it is kept: what is drawn is
  // never asked for again.
  sharp.concurrency(1)
  sharp.cache(false)
  // The bytes are a stranger's: of the library's many decoders these three alone may see them.
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

/**
 * The image in another size, `512x512`, as a file of the same kind and without metadata. It is
 * scaled until it covers that size, and what stands out is cut off on both sides. Decodes in the
 * thread pool, at most `pixelsMax`. Throws FormatError `image_pixels` for what cannot be decoded,
 * and the library's own error where its native code is not installed.
 */
export async function fitImage(
  { bytes, type }: Picture,
  { size, pixelsMax }: { readonly size: string; readonly pixelsMax: number },
): Promise<Picture> {
  const [width, height] = size.split('x').map(Number)
  decoder ??= loadDecoder()
  const decode = await decoder
  try {
    const fitted = await decode(bytes, {
      limitInputPixels: pixelsMax,
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
