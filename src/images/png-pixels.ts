import { promisify } from 'node:util'
import { crc32, inflate } from 'node:zlib'
import { FormatError } from '#attestation/errors.ts'

/** Encoders write data chunks of at least 8 KiB. This limit allows 16 MiB in chunks of 4 KiB. */
const PNG_CHUNKS_MAX = 4_096

/**
 * Checks a PNG to its last byte (PNG 3rd edition, sections 5 and 10). Its chunks must follow each
 * other without a gap, each with the right CRC, and IEND must end the file. The pixel data must
 * unpack to exactly the number of bytes that size and colour type require. Throws FormatError. The
 * caller must first limit the size, because up to this number of bytes is unpacked in memory. Does
 * not check filters, palette entries and ancillary chunks, which may hold any value.
 */
export async function checkPngPixels(bytes: Uint8Array): Promise<void> {
  const { header, data } = readChunks(bytes)
  const expected = pixelBytesOf(header)
  const pixels = await unpack(Buffer.concat(data), { maxOutputLength: expected }).catch(() => {
    throw new FormatError(
      'png_pixels',
      'expected pixel data that unpacks to what the size of the image needs',
    )
  })
  if (pixels.length !== expected)
    throw new FormatError(
      'png_pixels',
      'expected as much pixel data as the size of the image needs',
    )
}

const unpack = promisify<Uint8Array, { readonly maxOutputLength: number }, Buffer>(inflate)

const SIGNATURE_BYTES = 8
const HEADER_BYTES = 13
/** A chunk's length, type and CRC. */
const FRAME_BYTES = 12

type Chunks = { readonly header: DataView; readonly data: readonly Uint8Array[] }

/** The caller has already checked the PNG signature. */
function readChunks(bytes: Uint8Array): Chunks {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const data: Uint8Array[] = []
  let header: DataView | null = null
  let at = SIGNATURE_BYTES
  for (let count = 0; count < PNG_CHUNKS_MAX && at + FRAME_BYTES <= bytes.length; count++) {
    const length = view.getUint32(at)
    const end = at + FRAME_BYTES + length
    if (end > bytes.length) break
    const type = String.fromCharCode(...bytes.subarray(at + 4, at + 8))
    if (crc32(bytes.subarray(at + 4, end - 4)) !== view.getUint32(end - 4))
      throw new FormatError('png_crc', 'expected the right CRC of each chunk')
    const content = bytes.subarray(at + 8, end - 4)
    if ((type === 'IHDR') !== (count === 0)) break
    if (type === 'IHDR' && length === HEADER_BYTES)
      header = new DataView(content.buffer, content.byteOffset, length)
    if (type === 'IDAT') data.push(content)
    if (type === 'IEND' && header !== null && end === bytes.length) return { header, data }
    at = end
  }
  throw new FormatError('png_chunks', 'expected chunks from IHDR to IEND, and nothing after')
}

/** Samples per pixel, and the allowed numbers of bits per sample, by colour type. */
const COLOUR_TYPES: ReadonlyMap<
  number,
  { readonly samples: number; readonly bits: readonly number[] }
> = new Map([
  [0, { samples: 1, bits: [1, 2, 4, 8, 16] }],
  [2, { samples: 3, bits: [8, 16] }],
  [3, { samples: 1, bits: [1, 2, 4, 8] }],
  [4, { samples: 2, bits: [8, 16] }],
  [6, { samples: 4, bits: [8, 16] }],
])

/** The passes of Adam7 (section 8.1): where each pass begins, and its step sizes. */
const PASSES = [
  { x: 0, y: 0, dx: 8, dy: 8 },
  { x: 4, y: 0, dx: 8, dy: 8 },
  { x: 0, y: 4, dx: 4, dy: 8 },
  { x: 2, y: 0, dx: 4, dy: 4 },
  { x: 0, y: 2, dx: 2, dy: 4 },
  { x: 1, y: 0, dx: 2, dy: 2 },
  { x: 0, y: 1, dx: 1, dy: 2 },
] as const
const WHOLE = [{ x: 0, y: 0, dx: 1, dy: 1 }] as const

function pixelBytesOf(header: DataView): number {
  const [width, height, bits] = [header.getUint32(0), header.getUint32(4), header.getUint8(8)]
  const [colourType, compression, filter, interlace] = [9, 10, 11, 12].map((at) =>
    header.getUint8(at),
  )
  const kind = COLOUR_TYPES.get(colourType ?? -1)
  const isKnown = compression === 0 && filter === 0
  if (
    kind === undefined ||
    !kind.bits.includes(bits) ||
    !isKnown ||
    (interlace !== 0 && interlace !== 1)
  )
    throw new FormatError(
      'png_header',
      'expected a colour type, depth and methods of the PNG standard',
    )
  const passes = interlace === 0 ? WHOLE : PASSES
  return passes.reduce((sum, { x, y, dx, dy }) => {
    const columns = Math.ceil((width - x) / dx)
    const rows = Math.ceil((height - y) / dy)
    // Each row has one byte for its filter. A pass without columns has no rows.
    return columns <= 0 || rows <= 0
      ? sum
      : sum + rows * (1 + Math.ceil((columns * kind.samples * bits) / 8))
  }, 0)
}
