import OpenAI, { toFile } from 'openai'
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod'
import { beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { readImageFacts } from '#src/images/image-facts.ts'
import { findKept } from '../../support/kept-completions.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

// Aborts, and nodes that fail, are tested in ../plain-chat.test.ts.

let service: SharedAffidavit
beforeAll(async () => {
  service = await useAffidavit()
})

const Person = z.object({
  name: z.string().max(4),
  born: z.iso.date(),
  pets: z.array(z.object({ kind: z.enum(['cat', 'dog']), age: z.int().min(1) })).min(1),
  nickname: z.string().nullable(),
})
const weather = {
  name: 'get_weather',
  description: 'Weather of a city',
  parameters: z.object({ city: z.string() }),
  function: ({ city }: { readonly city: string }) => `rain in ${city}`,
}

describe.each([
  ['/v1', false],
  ['/v1/dashboard', false],
  ['/v1/verified', true],
])('the openai package, pointed at %s', (path, isVerified) => {
  const open = (options: ConstructorParameters<typeof OpenAI>[0] = {}) =>
    new OpenAI({ baseURL: service.url + path, apiKey: service.apiKey, maxRetries: 0, ...options })
  /** A request with a prompt that is unique among the tests of the shared service. */
  const ask = (text: string, model = 'demo/echo') => ({
    model,
    messages: [{ role: 'user' as const, content: `${text} through ${path} (openai)` }],
  })
  const isKept = async (text: string) =>
    (await findKept(service, `${text} through ${path} (openai)`)) !== null

  it('the openai package completes, and the answer has the id of its request', async () => {
    const { data, request_id: id } = await open()
      .chat.completions.create(ask('a whole text'))
      .withResponse()
    expect(data.choices[0]?.message.content).toBe(
      `[demonstration] You said: a whole text through ${path} (openai)`,
    )
    expect(data.object).toBe('chat.completion')
    expect(id).toMatch(/^[\w.:-]{1,128}$/)
    expect(data).toHaveProperty('_request_id', id)
    expect(await isKept('a whole text')).toBe(isVerified)
  })

  it('the openai package gathers a stream into the whole answer, with its usage', async () => {
    const request = { ...ask('gathered'), n: 2, logprobs: true, top_logprobs: 2, seed: 4 }
    const whole = await open().chat.completions.create(request)
    const gathered = await open()
      .chat.completions.stream({ ...request, stream_options: { include_usage: true } })
      .finalChatCompletion()
    expect(gathered.usage).toEqual(whole.usage)
    const pick = (answer: typeof whole) =>
      answer.choices.map(({ message, logprobs, finish_reason: reason }) => [
        message.content,
        logprobs,
        reason,
      ])
    expect(pick(whole)).toHaveLength(2)
    expect(pick(gathered)).toEqual(pick(whole))
  })

  it('the openai package parses an answer by a zod schema, streamed or not', async () => {
    const request = { ...ask('a person'), response_format: zodResponseFormat(Person, 'person') }
    const whole = await open().chat.completions.parse(request)
    const { parsed } = whole.choices[0]?.message ?? {}
    expect(Person.parse(parsed)).toEqual(parsed)
    const streamed = await open().chat.completions.stream(request).finalChatCompletion()
    expect(streamed.choices[0]?.message.parsed).toEqual(parsed)
  })

  it('the openai package runs tools until the model answers, streamed or not', async () => {
    const tools = [zodFunction(weather)]
    const request = { ...ask('get_weather({"city":"Oslo"})'), tools }
    const runner = open().chat.completions.runTools(request)
    expect(await runner.finalContent()).toBe('[demonstration] The tool answered: rain in Oslo')
    expect(runner.messages.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'tool',
      'assistant',
    ])
    const streaming = open().chat.completions.runTools({ ...request, stream: true })
    expect(await streaming.finalContent()).toBe('[demonstration] The tool answered: rain in Oslo')
  })

  it.each([
    [
      'the one it is told to',
      { type: 'function' as const, function: { name: 'measure' } },
      [['measure', { to: 3 }]],
    ],
    ['at least one', 'required' as const, [['get_weather', { city: 'demonstration' }]]],
    ['none', 'none' as const, undefined],
  ])('the model calls %s of the tools, with arguments that fit', async (_, choice, called) => {
    const measure = { name: 'measure', parameters: z.object({ to: z.int().min(3) }) }
    const answer = await open().chat.completions.parse({
      ...ask('do as you are told'),
      tools: [zodFunction(weather), zodFunction(measure)],
      tool_choice: choice,
    })
    const calls = answer.choices[0]?.message.tool_calls?.map((call) =>
      call.type === 'function' ? [call.function.name, call.function.parsed_arguments] : null,
    )
    expect(calls).toEqual(called)
  })

  it('the openai package throws its own error for each refusal, with the code and the words', async () => {
    const create = (client: OpenAI, request: object) =>
      client.chat.completions.create({ ...ask('refused'), ...request })
    await expect(create(open({ apiKey: 'wrong' }), {})).rejects.toThrow(OpenAI.AuthenticationError)
    await expect(create(open(), { model: 'nobodys' })).rejects.toThrow(OpenAI.NotFoundError)
    await expect(create(open(), { model: 'nobodys' })).rejects.toMatchObject({
      code: 'unsupported_model',
    })
    await expect(create(open(), { messages: [] })).rejects.toThrow(OpenAI.UnprocessableEntityError)
    const streamed = create(open(), { stream: true, temperature: 3 })
    await expect(streamed).rejects.toThrow(OpenAI.UnprocessableEntityError)
    await expect(streamed).rejects.toThrow('temperature')
    expect(await isKept('refused')).toBe(false)
  })

  it('the openai package retries a call whose answer was lost, and is given that answer', async () => {
    let calls = 0
    const losesFirst: typeof fetch = async (input, init) => {
      const reply = await fetch(input, init)
      await reply.arrayBuffer()
      if (++calls === 1) throw new TypeError('the connection broke before the answer came')
      return fetch(input, init)
    }
    const client = open({ maxRetries: 1, fetch: losesFirst })
    const headers = { 'Idempotency-Key': `lost:${path}` }
    const { data, response } = await client.chat.completions
      .create(ask('lost'), { headers })
      .withResponse()
    expect(calls).toBe(2)
    expect(response.headers.get('idempotent-replayed')).toBe('true')
    expect((await open().chat.completions.create(ask('lost'), { headers })).id).toBe(data.id)
    const other = open().chat.completions.create(ask('another'), { headers })
    await expect(other).rejects.toThrow(OpenAI.ConflictError)
  })
})

describe('the openai package, for what has no conversation', () => {
  const open = () => new OpenAI({ baseURL: `${service.url}/v1`, apiKey: service.apiKey })

  it('the openai package undoes the base64 of embeddings, which it asks for by itself', async () => {
    const request = { model: 'demo/embedding', input: ['a whale', 'taxes'] }
    const { data } = await open().embeddings.create(request)
    const floats = await open().embeddings.create({ ...request, encoding_format: 'float' })
    expect(data.map(({ embedding }) => embedding.length)).toEqual([256, 256])
    expect(data).toEqual(floats.data)
  })

  it('the openai package has images made, inline or at an address that needs no key, and edited', async () => {
    const drawing = { model: 'demo/image', prompt: 'a red whale', size: '256x256' as const, n: 2 }
    const { data: made = [] } = await open().images.generate({
      ...drawing,
      response_format: 'b64_json',
    })
    const pictures = made.map(({ b64_json: text }) => Buffer.from(text ?? '', 'base64'))
    const image = await toFile(pictures[0] ?? Buffer.of(), 'whale.png', { type: 'image/png' })
    const { data: changed = [] } = await open().images.edit({ ...drawing, image })
    const edited = await Promise.all(
      changed.map(async ({ url }) => (await fetch(url ?? '')).bytes()),
    )
    const small = { type: 'png', width: 256, height: 256 }
    expect([...pictures, ...edited].map(readImageFacts)).toEqual([small, small, small, small])
    expect(edited).not.toContainEqual(new Uint8Array(pictures[0] ?? []))
  })
})
