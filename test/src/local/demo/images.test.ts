import { inflateSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { readImageFacts } from '#src/images/image-facts.ts'
import { type Drawing, drawImages, parseEdit, parseGeneration } from '#src/local/demo/images.ts'
import { DemoError } from '#src/local/demo/request.ts'

const NOW_MS = 1_800_000_000_500
const drawing: Drawing = { prompt: 'a red fox', n: 1, edge: 256, format: 'b64_json', picture: '' }

function picturesOf(change: Partial<Drawing> = {}): readonly Buffer[] {
  const { data } = drawImages({ ...drawing, ...change }, NOW_MS) as { data: { b64_json: string }[] }
  return data.map(({ b64_json }) => Buffer.from(b64_json, 'base64'))
}

/** Bytes of the rows, by a PNG reader of this test's own. */
function rowsOf(png: Buffer): Buffer {
  const start = png.indexOf('IDAT')
  return inflateSync(png.subarray(start + 4, start + 4 + png.readUInt32BE(start - 4)))
}

describe('the demonstration of images', () => {
  it('the demonstration of images draws a PNG of the size that was asked for, the same for the same request', () => {
    const [picture = Buffer.alloc(0)] = picturesOf({ edge: 512 })
    expect(readImageFacts(picture)).toEqual({ type: 'png', width: 512, height: 512 })
    expect(picturesOf({ edge: 512 })[0]).toEqual(picture)
    expect(picture.includes('[demonstration]')).toBe(true)
    expect(rowsOf(picture).length).toBe(512 * (1 + 3 * 512))
  })

  it('the demonstration of images draws another picture for another prompt, index or picture', () => {
    const [fox] = picturesOf()
    const others = [
      ...picturesOf({ n: 2 }),
      ...picturesOf({ picture: 'ab' }),
      ...picturesOf({ prompt: 'red' }),
    ]
    expect(new Set(others.map((picture) => picture.toString('base64'))).size).toBe(4)
    expect(others[0]).toEqual(fox)
  })

  it('the demonstration of images reads forms, and refuses what is none', async () => {
    const form = new FormData()
    form.set('prompt', 'blue')
    form.set('model', 'demo/image')
    form.set('n', '2')
    form.set('image', new Blob(['x']), 'a.png')
    const request = new Response(form)
    const body = new Uint8Array(await request.arrayBuffer())
    const type = request.headers.get('content-type') ?? ''
    expect(await parseEdit(body, type)).toMatchObject({
      prompt: 'blue',
      n: 2,
      edge: 1024,
      format: 'url',
    })
    await expect(parseEdit(body, 'text/plain')).rejects.toThrow(DemoError)
  })

  it('the demonstration of images keeps no pictures, and knows one model', () => {
    expect(() => picturesOf({ format: 'url' })).toThrow(DemoError)
    expect(() => parseGeneration(Buffer.from('{"model":"demo/echo","prompt":"x"}'))).toThrow(
      DemoError,
    )
  })
})
