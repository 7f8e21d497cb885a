import { crc32, deflateSync } from 'node:zlib'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { checkPngPixels } from '#src/images/png-pixels.ts'
import { pngOf } from '../../support/image-files.ts'

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])

function chunk(type: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const frame = Buffer.alloc(8)
  frame.writeUInt32BE(data.length, 0)
  frame.writeUInt32BE(crc32(body), 4)
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)])
}

function header({ width = 8, height = 8, bits = 8, colour = 2, interlace = 0 }): Buffer {
  const data = Buffer.alloc(13)
  data.writeUInt32BE(width, 0)
  data.writeUInt32BE(height, 4)
  data.set([bits, colour, 0, 0, interlace], 8)
  return chunk('IHDR', data)
}

const END = chunk('IEND', Buffer.alloc(0))
const data = (bytes: number) => chunk('IDAT', deflateSync(Buffer.alloc(bytes)))
const png = (...chunks: readonly Uint8Array[]) => Buffer.concat([SIGNATURE, ...chunks])

/** An image whose pixel data is not that of its CRC. */
function withoutCrc(): Buffer {
  const bytes = png(header({}), data(200), END)
  const at = bytes.indexOf('IDAT') + 6
  bytes[at] = (bytes[at] ?? 0) ^ 1
  return bytes
}

const codeOf = async (bytes: Uint8Array) =>
  checkPngPixels(bytes).then(
    () => 'whole',
    (error: unknown) => (error instanceof FormatError ? error.code : error),
  )

it.each([
  ['truecolour', header({}), 8 * (1 + 24)],
  ['truecolour of 16 bits with alpha', header({ bits: 16, colour: 6 }), 8 * (1 + 64)],
  ['a bit for each pixel', header({ width: 9, bits: 1, colour: 0 }), 8 * (1 + 2)],
  // Adam7 of 5 by 3, worked out by hand from section 8.1: passes of 1x1, 1x1, 2x0 (pass 3 has no
  // row), 1x1, 3x1, 2x2, 5x1.
  [
    'an interlaced one',
    header({ width: 5, height: 3, interlace: 1, colour: 0 }),
    2 + 2 + 0 + 2 + 4 + 2 * 3 + 6,
  ],
])('checkPngPixels takes %s that is whole', async (_, ihdr, bytes) => {
  expect(await codeOf(png(ihdr, data(bytes), END))).toBe('whole')
  expect(await codeOf(png(ihdr, data(bytes - 1), END))).toBe('png_pixels')
  expect(await codeOf(png(ihdr, data(bytes + 1), END))).toBe('png_pixels')
})

it.each([
  ['without an end', png(header({}), data(200)), 'png_chunks'],
  ['with something behind it', Buffer.concat([pngOf(8), Buffer.from('<script>')]), 'png_chunks'],
  ['cut off', pngOf(64).subarray(0, -20), 'png_chunks'],
  ['whose header comes twice', png(header({}), header({}), data(200), END), 'png_chunks'],
  ['that begins with its data', png(data(200), header({}), END), 'png_chunks'],
  ['with a byte of its pixels changed', withoutCrc(), 'png_crc'],
  ['without pixel data', png(header({}), END), 'png_pixels'],
  [
    'whose pixel data is none',
    png(header({}), chunk('IDAT', Buffer.alloc(99, 7)), END),
    'png_pixels',
  ],
  ['that unpacks to gigabytes', png(header({}), data(64 * 1024 * 1024), END), 'png_pixels'],
  ['of an unknown colour type', png(header({ colour: 5 }), data(200), END), 'png_header'],
  ['of an unknown depth', png(header({ bits: 7 }), data(200), END), 'png_header'],
  ['of an unknown interlace method', png(header({ interlace: 2 }), data(200), END), 'png_header'],
  [
    'of endless empty chunks',
    png(header({}), ...Array.from({ length: 5_000 }, () => chunk('tEXt', Buffer.alloc(0))), END),
    'png_chunks',
  ],
])('checkPngPixels rejects a PNG %s', async (_, bytes, code) => {
  expect(await codeOf(bytes)).toBe(code)
})

it('checkPngPixels rejects whichever bit is flipped after the signature, and throws nothing but its own error', async () => {
  const whole = pngOf(16)
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 8, max: whole.length - 1 }), fc.nat(7), async (at, bit) => {
      const bytes = Buffer.from(whole)
      bytes[at] = (bytes[at] ?? 0) ^ (1 << bit)
      expect(await codeOf(bytes)).toMatch(/^png_/)
    }),
    { numRuns: 100 },
  )
})
