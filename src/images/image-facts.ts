/** Types of images that callers may send and get. */
export const IMAGE_TYPES = ['png', 'jpeg', 'webp'] as const

export type ImageType = (typeof IMAGE_TYPES)[number]

/** Read from the first bytes. The rest of the image may be damaged. */
export type ImageFacts = {
  readonly type: ImageType
  readonly width: number
  readonly height: number
}

/**
 * Limit of skipped segments and fill bytes before a JPEG's frame. Cameras write tens of segments.
 * Without this limit, a file of 25 MiB would block this thread for half a second.
 */
export const JPEG_STEPS_MAX = 1_024

export function mediaTypeOf(type: ImageType): string {
  return `image/${type}`
}

/**
 * Reads the start of a PNG (3rd edition, section 11.2.1), a JPEG (ITU T.81, annex B) or a WebP (RFC
 * 9649). Null for any other content. Does not decode the image, so the rest of the file may be
 * damaged or contain a second file.
 */
export function readImageFacts(bytes: Uint8Array): ImageFacts | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const facts = readPng(view) ?? readJpeg(view) ?? readWebp(view)
  return facts !== null && facts.width > 0 && facts.height > 0 ? facts : null
}

const PNG_SIGNATURE = [0x89504e47, 0x0d0a1a0a] as const
const PNG_HEADER_BYTES = 33

function readPng(view: DataView): ImageFacts | null {
  const isPng =
    view.byteLength >= PNG_HEADER_BYTES &&
    PNG_SIGNATURE.every((word, index) => view.getUint32(4 * index) === word) &&
    view.getUint32(8) === 13 &&
    textAt(view, 12) === 'IHDR'
  return isPng ? { type: 'png', width: view.getUint32(16), height: view.getUint32(20) } : null
}

/**
 * All markers from C0 to CF start a frame, except tables (C4), extensions (C8) and arithmetic
 * conditioning (CC).
 */
const isFrameStart = (marker: number) =>
  marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)

function readJpeg(view: DataView): ImageFacts | null {
  if (view.byteLength < 4 || view.getUint16(0) !== 0xffd8) return null
  let at = 2
  for (let steps = 0; steps < JPEG_STEPS_MAX && at + 9 <= view.byteLength; steps++) {
    if (view.getUint8(at) !== 0xff) return null
    const marker = view.getUint8(at + 1)
    if (isFrameStart(marker))
      return { type: 'jpeg', height: view.getUint16(at + 5), width: view.getUint16(at + 7) }
    // FF is a fill byte. A frame must come before the markers of image data and of the end.
    if (marker === 0xff) at += 1
    else if (marker <= 0x01 || (marker >= 0xd0 && marker <= 0xda) || view.getUint16(at + 2) < 2)
      return null
    else at += 2 + view.getUint16(at + 2)
  }
  return null
}

const WEBP_HEADER_BYTES = 30

function readWebp(view: DataView): ImageFacts | null {
  if (
    view.byteLength < WEBP_HEADER_BYTES ||
    textAt(view, 0) !== 'RIFF' ||
    textAt(view, 8) !== 'WEBP'
  )
    return null
  const size = webpSize(view)
  return size === null ? null : { type: 'webp', ...size }
}

function webpSize(view: DataView): Omit<ImageFacts, 'type'> | null {
  switch (textAt(view, 12)) {
    case 'VP8 ':
      return view.getUint8(23) === 0x9d && view.getUint16(24) === 0x012a
        ? { width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff }
        : null
    case 'VP8L': {
      const bits = view.getUint32(21, true)
      const isLossless = view.getUint8(20) === 0x2f
      return isLossless
        ? { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 }
        : null
    }
    case 'VP8X':
      return { width: uint24At(view, 24) + 1, height: uint24At(view, 27) + 1 }
    default:
      return null
  }
}

function uint24At(view: DataView, at: number): number {
  return view.getUint16(at, true) | (view.getUint8(at + 2) << 16)
}

function textAt(view: DataView, at: number): string {
  return String.fromCharCode(...new Uint8Array(view.buffer, view.byteOffset + at, 4))
}
