import OpenAI, { toFile } from 'openai'
import { beforeAll, describe, expect, it } from 'vitest'
import { readImageFacts } from '#src/images/image-facts.ts'
import { outcomeOf } from '../support/calls.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let client: OpenAI
beforeAll(async () => {
  service = await useAffidavit()
  client = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: service.apiKey, maxRetries: 0 })
})

const drawing = { model: 'demo/image', prompt: 'a blue whale', size: '512x512' as const }

describe('a service that was started with nothing configured', () => {
  it('an unconfigured service makes embeddings of the demonstration, the same as floats and as base64', async () => {
    const request = { model: 'demo/embedding', input: ['a whale', 'a blue whale', 'taxes'] }
    const floats = await client.embeddings.create({ ...request, encoding_format: 'float' })
    const decoded = await client.embeddings.create(request)
    expect(floats.data.map(({ embedding }) => embedding.length)).toEqual([256, 256, 256])
    expect(decoded.data.map(({ embedding }) => embedding)).toEqual(
      floats.data.map(({ embedding }) => embedding),
    )
    const [whale = [], blue = [], taxes = []] = floats.data.map(({ embedding }) => embedding)
    const nearness = (left: readonly number[], right: readonly number[]) =>
      left.reduce((sum, value, index) => sum + value * (right[index] ?? 0), 0)
    expect(nearness(whale, blue)).toBeGreaterThan(nearness(whale, taxes))
  })

  it('an unconfigured service makes images of the demonstration, and changes them', async () => {
    const { data = [] } = await client.images.generate({ ...drawing, n: 2 })
    const images = await Promise.all(
      data.map(async ({ url }) => new Uint8Array(await (await fetch(url ?? '')).arrayBuffer())),
    )
    expect(images.map((bytes) => readImageFacts(bytes)?.width)).toEqual([512, 512])
    const image = await toFile(images[0] ?? new Uint8Array(), 'whale.png', { type: 'image/png' })
    const edited = await client.images.edit({ ...drawing, image, response_format: 'b64_json' })
    const bytes = Buffer.from(edited.data?.[0]?.b64_json ?? '', 'base64')
    expect(readImageFacts(bytes)).toEqual({ type: 'png', width: 512, height: 512 })
    expect(bytes).not.toEqual(Buffer.from(images[0] ?? []))
  })

  it('an unconfigured service lists both models, and what they are for', async () => {
    const { data } = await client.models.list()
    const owners = Object.fromEntries(data.map(({ id, owned_by }) => [id, owned_by]))
    expect(owners).toMatchObject({ 'demo/embedding': 'embeddings', 'demo/image': 'images' })
  })

  it('an unconfigured service says that it has no search provider', async () => {
    const reply = await fetch(`${service.url}/v1/tool/search`, {
      method: 'POST',
      headers: { authorization: `Bearer ${service.apiKey}`, 'content-type': 'application/json' },
      body: JSON.stringify({ query: 'whales' }),
    })
    expect(await outcomeOf(reply)).toEqual([503, 'search_not_configured'])
  })
})
