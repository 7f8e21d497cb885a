import { describe, expect, it } from 'vitest'
import { FormatError } from '../../../attestation/errors.ts'
import { checkImages } from '../../../src/images/checked-images.ts'
import { jpegOf, pngOf, webpOf } from '../../support/image-files.ts'

const ASKED = { n: 1, size: '256x256' }
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')
const codeOf = async (images: readonly string[], asked = ASKED) =>
  checkImages(images, asked).then(
    (made) => made.map(({ type }) => type).join(),
    (error: unknown) => (error instanceof FormatError ? error.code : error),
  )

const PNG = pngOf(256)

describe('checkImages', () => {
  it.each([
    ['png', PNG],
    ['jpeg', jpegOf(256, 256)],
    ['webp', webpOf('VP8X', 256, 256)],
  ])('takes a %s of the size asked for, byte for byte', async (type, bytes) => {
    const [made] = await checkImages([base64(bytes)], ASKED)
    expect(made).toEqual({ bytes: Buffer.from(bytes), type, revisedPrompt: null })
  })

  it.each([
    ['no image', [], 'image_count'],
    ['one too many', [base64(PNG), base64(PNG)], 'image_count'],
    ['another size', [base64(pngOf(512))], 'image_size'],
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
    ['a JPEG and a page', [base64(Buffer.concat([jpegOf(256, 256), Buffer.from('<html>')]))], 'image_end'],
    ['half a WebP', [base64(webpOf('VP8X', 256, 256).subarray(0, -2))], 'image_end'],
  ])('rejects %s', async (_, images, code) => {
    expect(await codeOf(images)).toBe(code)
  })

  it('does not detect a JPEG or WebP whose middle cannot be drawn', async () => {
    const broken = Buffer.concat([
      jpegOf(256, 256).subarray(0, -2),
      Buffer.alloc(99, 7),
      Buffer.from([0xff, 0xd9]),
    ])
    expect(await codeOf([base64(broken)])).toBe('jpeg')
  })
})
