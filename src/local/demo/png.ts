import { crc32, deflateSync } from 'node:zlib'

/** Red, green and blue, each 0 to 255. */
export type Colour = readonly [number, number, number]

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
/** The text is how a reader of the file knows it, however it was cropped. */
const COMMENT = 'Comment\0[demonstration] No model made this picture.'
const BITS_PER_CHANNEL = 8
const TRUECOLOUR = 2

/** A square picture that is being drawn. */
export type Canvas = {
  readonly edge: number
  /** Colours one row from `from` to before `to`; what is outside the picture is left out. */
  fill(row: number, span: { readonly from: number; readonly to: number }, colour: Colour): void
  /** Gives the picture as PNG (3rd edition) of truecolour. */
  write(): Uint8Array
}

/** Gives a canvas of `edge` by `edge` pixels, all black. */
export function createCanvas(edge: number): Canvas {
  // A row is a byte for its filter, none, and three for each pixel.
  const rowBytes = 1 + 3 * edge
  const rows = Buffer.alloc(edge * rowBytes)
  return {
    edge,
    fill(row, { from, to }, colour) {
      if (row < 0 || row >= edge) return
      const start = row * rowBytes + 1
      const first = Math.max(0, from)
      const last = Math.min(edge, to)
      if (first < last) rows.fill(Buffer.from(colour), start + 3 * first, start + 3 * last)
    },
    write() {
      const header = Buffer.alloc(13)
      header.writeUInt32BE(edge, 0)
      header.writeUInt32BE(edge, 4)
      header.set([BITS_PER_CHANNEL, TRUECOLOUR, 0, 0, 0], 8)
      return Buffer.concat([
        SIGNATURE,
        chunk('IHDR', header),
        chunk('tEXt', Buffer.from(COMMENT, 'latin1')),
        chunk('IDAT', deflateSync(rows, { level: 6 })),
        chunk('IEND', Buffer.alloc(0)),
      ])
    },
  }
}

function chunk(type: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const frame = Buffer.alloc(8)
  frame.writeUInt32BE(data.length, 0)
  frame.writeUInt32BE(crc32(body), 4)
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)])
}
