import { writePng } from '#src/local/demo/images.ts'

/** A PNG of one colour. */
export function pngOf(
  edge: number,
  colour: readonly [number, number, number] = [10, 20, 30],
): Buffer {
  const row = Buffer.concat([Buffer.of(0), Buffer.alloc(3 * edge, Buffer.from(colour))])
  return Buffer.from(writePng(edge, Buffer.alloc(edge * row.length, row)))
}

/**
 * The beginning of a JPEG: application data, a quantisation table, the frame (ITU T.81, annex B).
 */
export function jpegOf(width: number, height: number): Buffer {
  const frame = Buffer.from([0xff, 0xc0, 0, 11, 8, 0, 0, 0, 0, 1, 1, 0x11, 0])
  frame.writeUInt16BE(height, 5)
  frame.writeUInt16BE(width, 7)
  return Buffer.concat([
    Buffer.from([
      0xff,
      0xd8,
      0xff,
      0xe0,
      0,
      16,
      ...Buffer.from('JFIF\0'),
      1,
      1,
      0,
      0,
      1,
      0,
      1,
      0,
      0,
    ]),
    Buffer.from([0xff, 0xff, 0xdb, 0, 67, 0, ...Buffer.alloc(64, 1)]),
    frame,
    Buffer.from([0xff, 0xd9]),
  ])
}

/** The beginning of a WebP (RFC 9649) of the kind `VP8 `, `VP8L` or `VP8X`. */
export function webpOf(kind: 'VP8 ' | 'VP8L' | 'VP8X', width: number, height: number): Buffer {
  const chunk = Buffer.alloc(20)
  if (kind === 'VP8 ') {
    chunk.set([0, 0, 0, 0x9d, 0x01, 0x2a])
    chunk.writeUInt16LE(width, 6)
    chunk.writeUInt16LE(height, 8)
  } else if (kind === 'VP8L') {
    chunk[0] = 0x2f
    chunk.writeUInt32LE((width - 1) | ((height - 1) << 14), 1)
  } else {
    chunk.writeUIntLE(width - 1, 4, 3)
    chunk.writeUIntLE(height - 1, 7, 3)
  }
  const head = Buffer.from('RIFF\0\0\0\0WEBP????\0\0\0\0', 'latin1')
  head.write(kind, 12, 'latin1')
  head.writeUInt32LE(chunk.length, 16)
  head.writeUInt32LE(4 + 8 + chunk.length, 4)
  return Buffer.concat([head, chunk])
}
