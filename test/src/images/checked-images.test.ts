import sharp from 'sharp'
import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { type AskedImages, checkImages, DRAWN_EDGE_MAX } from '#src/images/checked-images.ts'
import { readImageFacts } from '#src/images/image-facts.ts'
import { jpegOf, pngOf, webpOf } from '../../support/image-files.ts'

const ASKED: AskedImages = { n: 1, size: '256x256' }
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')
const codeOf = async (images: readonly string[], asked = ASKED) =>
  checkImages(images, asked).then(
    (made) => made.map(({ type }) => type).join(),
    (error: unknown) => (error instanceof FormatError ? error.code : error),
  )

const PNG = pngOf(256)

it.each([
  ['png', PNG],
  ['jpeg', jpegOf(256, 256)],
  ['webp', webpOf('VP8X', 256, 256)],
])('checkImages takes a %s of the size asked for, byte for byte', async (type, bytes) => {
  const [made] = await checkImages([base64(bytes)], ASKED)
  expect(made).toEqual({ bytes: Buffer.from(bytes), type, revisedPrompt: null })
})

it.each([
  ['no image', [], 'image_count'],
  ['one too many', [base64(PNG), base64(PNG)], 'image_count'],
  ['a dot', [base64(pngOf(63))], 'image_size'],
  ['more than is decoded', [base64(pngOf(DRAWN_EDGE_MAX + 1))], 'image_size'],
  ['what is no base64', [`!${base64(PNG)}`], 'image_type'],
  ['an empty text', [''], 'image_type'],
  ['a page', [base64(Buffer.from('<html>'.repeat(20)))], 'image_type'],
  [
    'a PNG header before noise',
    [base64(Buffer.concat([PNG.subarray(0, 33), Buffer.alloc(500, 7)]))],
    'png_chunks',
  ],
  ['half a PNG', [base64(PNG.subarray(0, PNG.length / 2))], 'png_chunks'],
  ['half a JPEG', [base64(jpegOf(256, 256).subarray(0, -2))], 'image_end'],
  [
    'a JPEG and a page',
    [base64(Buffer.concat([jpegOf(256, 256), Buffer.from('<html>')]))],
    'image_end',
  ],
  ['half a WebP', [base64(webpOf('VP8X', 256, 256).subarray(0, -2))], 'image_end'],
])('checkImages rejects %s', async (_, images, code) => {
  expect(await codeOf(images)).toBe(code)
})

it.each(['png', 'jpeg', 'webp'] as const)(
  'checkImages fits a %s of another size, for who asked for one',
  async (type) => {
    const create = { width: 1024, height: 1024, channels: 3, background: '#2060a0' } as const
    const drawn = await sharp({ create })
      .toFormat(type)
      .withExif({ IFD0: { Copyright: 'a node' } })
      .toBuffer()
    const [made] = await checkImages([base64(drawn)], { n: 1, size: '512x512' })
    expect(made?.type).toBe(type)
    const { width, height, exif } = await sharp(made?.bytes).metadata()
    expect([width, height, exif]).toEqual([512, 512, undefined])
    const { dominant } = await sharp(made?.bytes).stats()
    expect(dominant.b).toBeGreaterThan(dominant.r + 80)
    const [kept] = await checkImages([base64(drawn)], { n: 1, size: null })
    expect(Buffer.from(kept?.bytes ?? []).equals(drawn)).toBe(true)
  },
)

it.each([
  ['512x512', 1024, 256],
  ['1024x1024', 64, 100],
])('checkImages covers %s with what is %i by %i', async (size, width, height) => {
  const create = { width, height, channels: 4, background: '#2060a0' } as const
  const drawn = await sharp({ create }).png().toBuffer()
  const [made] = await checkImages([base64(drawn)], { n: 1, size })
  const facts = readImageFacts(made?.bytes ?? new Uint8Array())
  expect(`${facts?.width}x${facts?.height}`).toBe(size)
  expect((await sharp(made?.bytes).stats()).isOpaque).toBe(true)
})

it('checkImages does not detect a JPEG or WebP whose middle cannot be drawn', async () => {
  const broken = Buffer.concat([
    jpegOf(256, 256).subarray(0, -2),
    Buffer.alloc(99, 7),
    Buffer.from([0xff, 0xd9]),
  ])
  expect(await codeOf([base64(broken)])).toBe('jpeg')
})
