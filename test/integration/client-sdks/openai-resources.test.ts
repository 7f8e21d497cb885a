import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI, { toFile } from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readImageFacts } from '#src/images/image-facts.ts'
import { type Affidavit, startAffidavit } from '../../support/affidavit.ts'

// Equal vectors in floats and base64, and images at addresses, are tested in ../upstream.test.ts.

const TIERS = {
  default_tier: 'test',
  tiers: {
    test: {
      groups: [
        { name: 'scarce', models: ['demo/lorem'], requests_per_minute: 1, tokens_per_minute: 500 },
        { name: 'all' },
      ],
    },
  },
}

let folder: string
let service: Affidavit
let client: OpenAI
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-tiers-'))
  const file = join(folder, 'tiers.json')
  await writeFile(file, JSON.stringify(TIERS))
  service = await startAffidavit({ logLevel: 'warn', variables: { RATE_LIMIT_TIERS_FILE: file } })
  client = open()
})
afterAll(async () => {
  await service.stop()
  await rm(folder, { recursive: true })
})

function open(options: ConstructorParameters<typeof OpenAI>[0] = {}): OpenAI {
  return new OpenAI({
    baseURL: `${service.url}/v1`,
    apiKey: service.apiKey,
    maxRetries: 0,
    ...options,
  })
}

describe('embeddings of the openai package', () => {
  it.each([
    ['a text', 'a whale', 1],
    ['texts', ['a whale', 'taxes'], 2],
    ['tokens', [64, 35632], 1],
    ['lists of tokens', [[64, 35632], [7]], 2],
  ])('embeddings are made of %s, one for each input, in their order', async (_, input, count) => {
    const answer = await client.embeddings.create({ model: 'demo/embedding', input })
    expect(answer.data.map(({ index, embedding }) => [index, embedding.length])).toEqual(
      Array.from({ length: count }, (_unused, index) => [index, 256]),
    )
    expect(answer.usage.total_tokens).toBeGreaterThan(0)
  })

  it('embeddings are undone from base64 by the package, or given in base64 when asked for', async () => {
    const request = { model: 'demo/embedding', input: 'a whale' }
    const [plain] = (await client.embeddings.create(request)).data
    const [coded] = (await client.embeddings.create({ ...request, encoding_format: 'base64' })).data
    const bytes = Buffer.from(String(coded?.embedding), 'base64')
    expect(Array.from({ length: 256 }, (_, index) => bytes.readFloatLE(index * 4))).toEqual(
      plain?.embedding,
    )
  })

  it('embeddings are as short as asked for, and refused for empty input and for an unknown model', async () => {
    const request = { model: 'demo/embedding', input: 'a whale' }
    const { data } = await client.embeddings.create({ ...request, dimensions: 3 })
    expect(data[0]?.embedding).toHaveLength(3)
    const empty = client.embeddings.create({ ...request, input: [] })
    await expect(empty).rejects.toThrow(OpenAI.UnprocessableEntityError)
    const unknown = client.embeddings.create({ ...request, model: 'nobodys' })
    await expect(unknown).rejects.toThrow(OpenAI.NotFoundError)
  })
})

describe('images of the openai package', () => {
  const drawing = { model: 'demo/image', prompt: 'a red whale', size: '256x256' as const }
  const inline = { ...drawing, response_format: 'b64_json' as const }

  it('images are generated, inline or at an address that needs no key, and edited', async () => {
    const made = await client.images.generate({ ...inline, n: 2 })
    const pictures = (made.data ?? []).map(({ b64_json: text }) =>
      Buffer.from(text ?? '', 'base64'),
    )
    const small = { type: 'png', width: 256, height: 256 }
    expect(pictures.map(readImageFacts)).toEqual([small, small])
    const image = await toFile(pictures[0] ?? Buffer.of(), 'whale.png', { type: 'image/png' })
    const { data } = await client.images.edit({ ...drawing, image, n: 2 })
    const edited = await Promise.all((data ?? []).map(async ({ url }) => fetch(url ?? '')))
    expect(edited.map((reply) => reply.headers.get('content-type'))).toEqual([
      'image/png',
      'image/png',
    ])
    const bytes = await Promise.all(edited.map((reply) => reply.bytes()))
    expect(bytes.map(readImageFacts)).toEqual([small, small])
    expect(bytes).not.toContainEqual(new Uint8Array(pictures[0] ?? []))
  })

  it('images are refused for an invalid picture, for a mask that would be left out, and beyond ten', async () => {
    const image = await toFile(Buffer.from('no picture'), 'whale.png', { type: 'image/png' })
    const refused = client.images.edit({ ...inline, image })
    await expect(refused).rejects.toThrow(OpenAI.UnprocessableEntityError)
    await expect(client.images.edit({ ...inline, image, mask: image })).rejects.toThrow(
      OpenAI.BadRequestError,
    )
    await expect(client.images.generate({ ...inline, n: 11 })).rejects.toThrow(
      OpenAI.UnprocessableEntityError,
    )
  })
})

describe('models of the openai package', () => {
  it('the models are listed whole, each with what it is for', async () => {
    const owners = new Map<string, string>()
    for await (const { id, owned_by: owner } of client.models.list()) owners.set(id, owner)
    expect(owners.get('demo/echo')).toBe('nodes')
    expect(owners.get('demo/embedding')).toBe('embeddings')
  })

  it('the models are found one by one', async () => {
    expect(await client.models.retrieve('demo/echo')).toMatchObject({
      id: 'demo/echo',
      owned_by: 'nodes',
    })
    await expect(client.models.retrieve('demo/nothing')).rejects.toThrow(OpenAI.NotFoundError)
  })
})

describe.each(['/v1', '/v1/verified'])('limits, as the openai package sees them at %s', (path) => {
  let calls = 0
  const counted: typeof fetch = (input, init) => {
    calls++
    return fetch(input, init)
  }
  const scarce = {
    model: 'demo/lorem',
    messages: [{ role: 'user' as const, content: 'Write 2 words' }],
  }

  it('a call that no waiting can let through is tried once', async () => {
    calls = 0
    const patient = open({ baseURL: service.url + path, maxRetries: 3, fetch: counted })
    const refused = patient.chat.completions.create({ ...scarce, max_tokens: 1_000 })
    await expect(refused).rejects.toThrow(OpenAI.RateLimitError)
    await expect(refused).rejects.toMatchObject({ code: 'rate_limit_exceeded' })
    expect(calls).toBe(1)
  })

  it('a call over the limit is refused with the time to try again', async () => {
    const eager = open({ baseURL: service.url + path })
    const request = { ...scarce, max_tokens: 10 }
    // Three calls in a row may meet a new minute, which admits at most two of them.
    const outcomes = await Promise.all(
      Array.from({ length: 3 }, () =>
        eager.chat.completions.create(request).then(
          () => null,
          (error: unknown) => error,
        ),
      ),
    )
    const refused = outcomes.find((outcome) => outcome !== null)
    if (!(refused instanceof OpenAI.RateLimitError)) throw new Error('expected a RateLimitError')
    expect(refused.headers.get('x-ratelimit-limit-requests')).toBe('1')
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    expect(Number(refused.headers.get('retry-after'))).toBeLessThan(60)
  })
})
