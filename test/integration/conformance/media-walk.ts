import { describe, expect, it } from 'vitest'
import { readImageFacts } from '#src/images/image-facts.ts'
import { EMBEDDING, GENERATION, SEARCH } from './media-rows.ts'
import { expectRefusal } from './reply-checks.ts'
import type { Stage } from './stage.ts'

const GENERATIONS = '/v1/images/generations'
const IMAGE_FILE = '/v1/images/files/{id}'

type Image = { readonly url: string | null; readonly b64_json: string | null }

const imagesOf = (value: unknown) => (value as { readonly data: readonly Image[] }).data
const pathOf = ({ url }: Image) => new URL(url ?? '').pathname

/** Interface, 2.5, 2.6, and facts: the answers for images, embeddings and searches. */
export function walkMedia(stage: () => Stage): void {
  describe('2.5: images', () => {
    it('a generation gives by default one image, by its address, of 1024 pixels', async () => {
      const { api, service, post } = stage()
      const { size: _, ...request } = GENERATION
      const { value } = await post(GENERATIONS, request)
      expect(value).toMatchObject({ created: expect.closeTo(Date.now() / 1000, -2) })
      const [image, ...more] = imagesOf(value)
      if (image === undefined) throw new TypeError('expected an image')
      expect(more).toEqual([])
      expect(image.b64_json).toBe(null)
      const target = pathOf(image)
      const file = await fetch(service.url + target)
      expect(readImageFacts(await file.bytes())).toEqual({ type: 'png', width: 1024, height: 1024 })
      const documented = await api.call({ method: 'GET', path: IMAGE_FILE, target, key: null })
      expect(documented.status).toBe(200)
      const missing = await api.call({ method: 'GET', path: IMAGE_FILE, target: `${target}x` })
      expectRefusal(missing, 404, 'not_found')
    })

    it.each([256, 512, 1024])(
      'a generation with b64_json gives n images inline, of size %d',
      async (edge) => {
        const request = {
          ...GENERATION,
          n: 2,
          size: `${edge}x${edge}`,
          response_format: 'b64_json',
        }
        const images = imagesOf((await stage().post(GENERATIONS, request)).value)
        expect(images.map(({ url }) => url)).toEqual([null, null])
        const facts = images.map(({ b64_json }) =>
          readImageFacts(Buffer.from(b64_json ?? '', 'base64')),
        )
        expect(facts).toEqual(
          Array.from({ length: 2 }, () => ({ type: 'png', width: edge, height: edge })),
        )
      },
    )

    it('images are edited with a form, not with JSON (part 4, rule 4)', async () => {
      expectRefusal(
        await stage().post('/v1/images/edits', GENERATION),
        415,
        'unsupported_media_type',
      )
    })
  })

  describe('2.6: embeddings', () => {
    const path = '/v1/embeddings'

    it('embeddings are floats unless asked otherwise, and the same as base64', async () => {
      const request = { ...EMBEDDING, input: ['a', 'b'] }
      const floats = await stage().post(path, request)
      const texts = await stage().post(path, { ...request, encoding_format: 'base64' })
      const decode = (text: string) => [
        ...new Float32Array(new Uint8Array(Buffer.from(text, 'base64')).buffer),
      ]
      const { data } = texts.value as { readonly data: readonly { readonly embedding: string }[] }
      expect(data).toHaveLength(2)
      expect(floats.value).toMatchObject({
        object: 'list',
        data: data.map((one, index) => ({
          object: 'embedding',
          index,
          embedding: decode(one.embedding),
        })),
      })
    })

    it('embeddings of each of the four shapes are as many as there are inputs', async () => {
      for (const [input, count] of [
        ['a', 1],
        [['a', 'b', 'c'], 3],
        [[1, 2, 3], 1],
        [[[1, 2], [3]], 2],
      ] as const) {
        const { value } = await stage().post(path, { ...EMBEDDING, input })
        const indexes = (value as { readonly data: readonly { readonly index: number }[] }).data
        expect(indexes.map(({ index }) => index)).toEqual(
          Array.from({ length: count }, (_, index) => index),
        )
      }
    })
  })

  it.each([
    [undefined, 5],
    [1, 1],
    [10, 10],
  ])('facts: a search with max_results %s gives %d', async (max_results, count) => {
    const { value } = await stage().post('/v1/tool/search', { ...SEARCH, max_results })
    const results = Array.from({ length: count }, (_, index) => ({
      title: 't',
      position: index + 1,
    }))
    expect(value).toMatchObject({ results })
  })
}
