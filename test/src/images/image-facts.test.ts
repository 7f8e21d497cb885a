import fc from 'fast-check'
import { expect, it } from 'vitest'
import { JPEG_STEPS_MAX, readImageFacts } from '#src/images/image-facts.ts'
import { decodeImage } from '#src/images/image-source.ts'
import { jpegOf, pngOf, webpOf } from '../../support/image-files.ts'

const IMAGES = [
  ['png', pngOf(64), 64, 64],
  ['jpeg', jpegOf(640, 480), 640, 480],
  ['webp', webpOf('VP8 ', 320, 200), 320, 200],
  ['webp', webpOf('VP8L', 1000, 2), 1000, 2],
  ['webp', webpOf('VP8X', 8193, 70_000), 8193, 70_000],
] as const

it.each(IMAGES)('readImageFacts knows a %s by its bytes', (type, bytes, width, height) => {
  expect(readImageFacts(bytes)).toEqual({ type, width, height })
  // Also where they stand in a larger buffer.
  const within = Buffer.concat([Buffer.alloc(7), bytes]).subarray(7)
  expect(readImageFacts(within)).toEqual({ type, width, height })
})

it.each([
  ['nothing', Buffer.alloc(0)],
  ['a GIF', Buffer.from('GIF89a\x01\0\x01\0')],
  ['a page', Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'.repeat(9))],
  ['a PNG without width', Buffer.from(pngOf(64)).fill(0, 16, 20)],
  ['a PNG signature', pngOf(64).subarray(0, 20)],
  ['a JPEG without frame', Buffer.from([0xff, 0xd8, 0xff, 0xda, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0])],
  ['a JPEG with an empty segment', Buffer.from([0xff, 0xd8, 0xff, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0])],
  ['a JPEG of fill bytes', Buffer.concat([Buffer.from([0xff, 0xd8]), Buffer.alloc(100_000, 0xff)])],
  ['a sound', Buffer.from(webpOf('VP8X', 1, 1)).fill('WAVE', 8, 12)],
])('readImageFacts takes %s for no image', (_, bytes) => {
  expect(readImageFacts(bytes)).toBeNull()
})

it('readImageFacts looks for a JPEG frame behind as many segments as are real, and no further', () => {
  const jpeg = jpegOf(640, 480)
  const behind = (count: number) =>
    Buffer.concat([
      jpeg.subarray(0, 2),
      Buffer.from('ffe00002'.repeat(count), 'hex'),
      jpeg.subarray(2),
    ])
  expect(readImageFacts(behind(JPEG_STEPS_MAX - 10))).toMatchObject({ width: 640 })
  expect(readImageFacts(behind(JPEG_STEPS_MAX))).toBeNull()
})

it('readImageFacts looks through 25 MiB of empty segments in no time', () => {
  const file = Buffer.alloc(25 * 1024 * 1024, 'ffe00002', 'hex')
  file.set([0xff, 0xd8])
  const before = process.cpuUsage()
  expect(readImageFacts(file)).toBeNull()
  expect(process.cpuUsage(before).user).toBeLessThan(50_000)
})

it('readImageFacts reads any bytes without a fault', () => {
  const starts = fc.constantFrom(...IMAGES.map(([, bytes]) => bytes))
  fc.assert(
    fc.property(starts, fc.uint8Array({ maxLength: 80 }), fc.nat(60), (start, noise, keep) => {
      const facts = readImageFacts(Buffer.concat([start.subarray(0, keep), noise]))
      if (facts !== null) expect(facts.width * facts.height).toBeGreaterThan(0)
    }),
    { numRuns: 500 },
  )
})

it('decodeImage gives the bytes and kind of an image in base64', () => {
  const png = pngOf(8)
  expect(decodeImage(png.toString('base64'))).toEqual({ bytes: png, type: 'png' })
})

it.each([
  [null],
  [7],
  [''],
  ['!!!!'],
  [pngOf(8).toString('base64').replace('A', '!')],
  [Buffer.from('text').toString('base64')],
])('decodeImage takes %j for no image', (base64) => {
  expect(decodeImage(base64)).toBeNull()
})

it('decodeImage refuses in no time what is all padding', () => {
  const before = process.cpuUsage()
  expect(decodeImage(`${'='.repeat(30_000_000)}A`)).toBeNull()
  expect(process.cpuUsage(before).user).toBeLessThan(1_000_000)
})
