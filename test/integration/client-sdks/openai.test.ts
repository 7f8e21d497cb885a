import OpenAI from 'openai'
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod'
import { beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { findKept } from '../../support/kept-completions.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

// Plain and verified calls, aborts and lists are also tested in ../openai-sdk.test.ts and
// ../plain-chat.test.ts.

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

  it('the same call made four times at once under one key makes one completion', async () => {
    const headers = { 'Idempotency-Key': `at-once:${path}` }
    const request = ask('at once', 'demo/lorem')
    const answers = await Promise.all(
      Array.from({ length: 4 }, () =>
        open({ maxRetries: 5 }).chat.completions.create(request, { headers }),
      ),
    )
    expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
  })
})
