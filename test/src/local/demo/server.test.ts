import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SEEDED_CREATED } from '#src/local/demo/chat-answer.ts'
import { createDemoServer, DEMO_BODY_BYTES_MAX } from '#src/local/demo/server.ts'

const NOW_MS = 1_800_000_000_500
const server = createDemoServer({ delayMs: 0, now: () => NOW_MS })
let url = ''
let client: OpenAI

beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${portOf(server)}/v1`
  client = new OpenAI({ baseURL: url, apiKey: 'none', maxRetries: 0 })
})
afterAll(() => {
  server.close()
  server.closeAllConnections()
})

const hello = { model: 'demo/echo', messages: [{ role: 'user' as const, content: 'hello' }] }
const weather = {
  type: 'function' as const,
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
}
const clock = { type: 'function' as const, function: { name: 'get_time' } }

async function post(body: unknown): Promise<{ status: number; text: string }> {
  const raw = typeof body === 'string' ? body : JSON.stringify(body)
  const response = await fetch(`${url}/chat/completions`, { method: 'POST', body: raw })
  return { status: response.status, text: await response.text() }
}

describe('the answer', () => {
  it("the demonstration's answer says that it is a demonstration and repeats what was said", async () => {
    const answer = await client.chat.completions.create(hello)
    expect(answer.choices[0]?.message).toEqual({
      role: 'assistant',
      content: '[demonstration] You said: hello',
      refusal: null,
    })
    expect(answer.choices[0]?.finish_reason).toBe('stop')
    expect(answer.system_fingerprint).toBe('fp_demonstration')
    expect(answer.created).toBe(1_800_000_000)
  })

  it("the demonstration's answer has the same text for the same request, but an id of its own", async () => {
    const lorem = { ...hello, model: 'demo/lorem', n: 2 }
    const [first, second] = [
      await client.chat.completions.create(lorem),
      await client.chat.completions.create(lorem),
    ]
    expect(first.choices).toEqual(second.choices)
    expect(first.id).not.toBe(second.id)
    expect(first.choices[0]?.message.content).not.toBe(first.choices[1]?.message.content)
  })

  it("the demonstration's answer is the same to the byte when the request has a seed", async () => {
    const [first, second] = [await post({ ...hello, seed: 7 }), await post({ ...hello, seed: 7 })]
    expect(first.text).toBe(second.text)
    expect(JSON.parse(first.text).created).toBe(SEEDED_CREATED)
    expect((await post({ ...hello, seed: 8 })).text).not.toBe(first.text)
  })

  it("the demonstration's answer writes as many words as the message asks for", async () => {
    const messages = [{ role: 'user' as const, content: 'Write 200 words.' }]
    const answer = await client.chat.completions.create({ model: 'demo/lorem', messages })
    expect(answer.choices[0]?.message.content?.split(' ')).toHaveLength(201)
  })

  it("the demonstration's answer counts tokens of prompt and answer", async () => {
    const { usage } = await client.chat.completions.create(hello)
    // 3 to begin the answer, 3 for the message, 1 for its text; `[`, `demonstr`, `ation`, `]`, `
    // You`, ` said`, `:`, ` hello`.
    expect(usage).toMatchObject({ prompt_tokens: 7, completion_tokens: 8, total_tokens: 15 })
  })

  it("the demonstration's answer ends at max_tokens with finish_reason length", async () => {
    const answer = await client.chat.completions.create({ ...hello, max_tokens: 3 })
    expect(answer.choices[0]).toMatchObject({
      finish_reason: 'length',
      message: { content: '[demonstration' },
    })
    expect(answer.usage?.completion_tokens).toBe(3)
  })

  it("the demonstration's answer ends before the first stop sequence", async () => {
    const answer = await client.chat.completions.create({ ...hello, stop: ['hello', ' said'] })
    expect(answer.choices[0]).toMatchObject({
      finish_reason: 'stop',
      message: { content: '[demonstration] You' },
    })
  })

  it("the demonstration's answer has log probabilities whose bytes are the tokens", async () => {
    const answer = await client.chat.completions.create({
      ...hello,
      logprobs: true,
      top_logprobs: 3,
    })
    const entries = answer.choices[0]?.logprobs?.content ?? []
    const bytes = entries.flatMap((entry) => entry.bytes ?? [])
    expect(Buffer.from(bytes).toString()).toBe(answer.choices[0]?.message.content)
    for (const { logprob, top_logprobs: top } of entries) {
      expect(logprob).toBeLessThanOrEqual(0)
      expect(top).toHaveLength(3)
      expect(top.map((entry) => entry.logprob)).toEqual(
        top.map((entry) => entry.logprob).toSorted((a, b) => b - a),
      )
    }
  })

  it("the demonstration's answer fits the JSON schema that was asked for", async () => {
    const schema = {
      type: 'object',
      properties: { age: { type: 'integer', minimum: 18 } },
      required: ['age'],
    }
    const answer = await client.chat.completions.create({
      ...hello,
      response_format: { type: 'json_schema', json_schema: { name: 'person', schema } },
    })
    expect(JSON.parse(answer.choices[0]?.message.content ?? '')).toEqual({ age: 18 })
  })

  it("the demonstration's answer is a JSON object when one was asked for", async () => {
    const answer = await client.chat.completions.create({
      ...hello,
      response_format: { type: 'json_object' },
    })
    expect(JSON.parse(answer.choices[0]?.message.content ?? '')).toEqual({
      demonstration: true,
      text: '[demonstration] You said: hello',
    })
  })

  it("the demonstration's answer is a refusal from demo/refusal", async () => {
    const answer = await client.chat.completions.create({ ...hello, model: 'demo/refusal' })
    expect(answer.choices[0]?.message).toMatchObject({
      content: null,
      refusal: expect.stringContaining('declines'),
    })
  })

  it('the demo reads text parts of a message', async () => {
    const content = [
      { type: 'text' as const, text: 'a' },
      { type: 'image_url' as const, image_url: { url: 'data:,' } },
      { type: 'text' as const, text: 'b' },
    ]
    const answer = await client.chat.completions.create({
      model: 'demo/echo',
      messages: [{ role: 'user', content }],
    })
    expect(answer.choices[0]?.message.content).toBe('[demonstration] You said: ab')
  })
})

describe('tools', () => {
  const ask = (content: string, more: object = {}) =>
    client.chat.completions.create({
      model: 'demo/echo',
      messages: [{ role: 'user', content }],
      tools: [weather, clock],
      ...more,
    })
  const callsOf = (answer: Awaited<ReturnType<typeof ask>>) =>
    (answer.choices[0]?.message.tool_calls ?? []).map((call) =>
      call.type === 'function' ? call.function : call,
    )

  it("the demonstration's tools are called when the message names them, in the order of the request", async () => {
    const answer = await ask('Call get_time and get_weather({"city":"Paris"}) please')
    expect(callsOf(answer)).toEqual([
      { name: 'get_weather', arguments: '{"city":"Paris"}' },
      { name: 'get_time', arguments: '{}' },
    ])
    expect(answer.choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: { content: null },
    })
  })

  it("the demonstration's tools are not called when the message names none, unless one is required", async () => {
    expect(callsOf(await ask('hello'))).toEqual([])
    const required = callsOf(await ask('hello', { tool_choice: 'required' }))
    expect(required).toEqual([{ name: 'get_weather', arguments: '{"city":"demonstration"}' }])
    expect(callsOf(await ask('hello', { model: 'demo/tools' }))).toEqual(required)
  })

  it("the demonstration's tools are called one at a time when parallel calls are off", async () => {
    expect(callsOf(await ask('get_weather get_time', { parallel_tool_calls: false }))).toHaveLength(
      1,
    )
  })

  it("the demonstration's tools are called by the name that tool_choice gives, and never with none", async () => {
    const choice = { type: 'function', function: { name: 'get_time' } }
    expect(callsOf(await ask('get_weather', { tool_choice: choice }))).toEqual([
      { name: 'get_time', arguments: '{}' },
    ])
    expect(callsOf(await ask('get_weather', { tool_choice: 'none' }))).toEqual([])
  })

  it("the demonstration's tools lead to a text answer once their result is there", async () => {
    const answer = await client.chat.completions.create({
      model: 'demo/tools',
      tools: [weather],
      messages: [
        { role: 'user', content: 'get_weather' },
        {
          role: 'assistant',
          tool_calls: [
            { id: 'a', type: 'function', function: { name: 'get_weather', arguments: '{}' } },
          ],
        },
        { role: 'tool', tool_call_id: 'a', content: 'sunny' },
      ],
    })
    expect(answer.choices[0]?.message.content).toBe('[demonstration] The tool answered: sunny')
  })

  it("the demonstration's tools work in the older form of functions", async () => {
    const answer = await client.chat.completions.create({
      ...hello,
      functions: [{ name: 'get_time' }],
      function_call: { name: 'get_time' },
    })
    expect(answer.choices[0]).toMatchObject({
      finish_reason: 'function_call',
      message: { content: null, function_call: { name: 'get_time', arguments: '{}' } },
    })
  })
})

describe('a stream', () => {
  it.each([
    ['text', { ...hello, n: 2, logprobs: true, top_logprobs: 1 }],
    ['tool calls', { ...hello, model: 'demo/tools', tools: [weather, clock] }],
    ['a refusal', { ...hello, model: 'demo/refusal' }],
  ])('a stream of %s adds up to the answer that is not streamed', async (_, request) => {
    const seeded = { ...request, seed: 1 }
    const plain = await client.chat.completions.create(seeded)
    const streamed = await client.chat.completions
      .stream({ ...seeded, stream_options: { include_usage: true } })
      .finalChatCompletion()
    const shapeOf = (answer: typeof plain) =>
      answer.choices.map(({ index, finish_reason, message, logprobs }) => ({
        index,
        finish_reason,
        content: message.content,
        refusal: message.refusal,
        calls: message.tool_calls?.map((call) => call.type === 'function' && call.function),
        logprobs,
      }))
    expect(shapeOf(streamed)).toEqual(shapeOf(plain))
    expect(streamed.usage).toEqual(plain.usage)
  })

  it('a stream begins with role and empty content, ends with finish_reason and [DONE], and has no usage unasked', async () => {
    const { text } = await post({ ...hello, stream: true })
    const events = text.split('\n\n').filter(Boolean)
    expect(events.at(-1)).toBe('data: [DONE]')
    const chunks = events.slice(0, -1).map((event) => JSON.parse(event.slice('data: '.length)))
    expect(chunks[0].choices[0].delta).toEqual({ role: 'assistant', content: '', refusal: null })
    expect(chunks.at(-1).choices[0]).toEqual({
      index: 0,
      delta: {},
      logprobs: null,
      finish_reason: 'stop',
    })
    expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1)
    expect(chunks.some((chunk) => 'usage' in chunk)).toBe(false)
  })

  it('a stream ends when the reader goes away', async () => {
    const lonely = createDemoServer({ delayMs: 0, now: () => NOW_MS }).listen(0, '127.0.0.1')
    await once(lonely, 'listening')
    const controller = new AbortController()
    const messages = [{ role: 'user', content: 'Write 100000 words.' }]
    const response = await fetch(`http://127.0.0.1:${portOf(lonely)}/v1/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({ model: 'demo/lorem', messages, stream: true }),
      signal: controller.signal,
    })
    await response.body?.getReader().read()
    expect(await countConnections(lonely)).toBe(1)
    controller.abort()
    await expect.poll(() => countConnections(lonely)).toBe(0)
    lonely.close()
  })
})

function portOf(listening: Server): number {
  return (listening.address() as AddressInfo).port
}

function countConnections(listening: Server): Promise<number> {
  return new Promise((resolve, reject) =>
    listening.getConnections((fault, count) => (fault ? reject(fault) : resolve(count))),
  )
}

describe('a request that is refused', () => {
  it.each([
    ['an unknown model', 404, 'model', { ...hello, model: 'demo/none' }],
    ['no JSON', 400, null, '{'],
    ['no messages', 400, 'messages', { model: 'demo/echo' }],
    ['an empty list of messages', 400, 'messages', { ...hello, messages: [] }],
    ['a temperature out of bounds', 400, 'temperature', { ...hello, temperature: 2.1 }],
    ['top_logprobs without logprobs', 400, 'top_logprobs', { ...hello, top_logprobs: 1 }],
    ['stream_options without stream', 400, 'stream_options', { ...hello, stream_options: {} }],
    [
      'a schema without example',
      400,
      'schema',
      {
        ...hello,
        response_format: { type: 'json_schema', json_schema: { name: 'a', schema: { enum: [] } } },
      },
    ],
  ])(
    'the demo refuses a request for %s with OpenAI’s error envelope',
    async (_, status, param, body) => {
      const answer = await post(body)
      expect(answer.status).toBe(status)
      expect(JSON.parse(answer.text).error).toMatchObject({ type: 'invalid_request_error', param })
    },
  )

  it('the demo answers a body over the limit with 413', async () => {
    expect((await post('x'.repeat(DEMO_BODY_BYTES_MAX + 1))).status).toBe(413)
  })

  it('the demo answers another path with 404', async () => {
    expect((await fetch(`${url}/moderations`)).status).toBe(404)
  })
})

describe('the model list', () => {
  it("the demonstration's model list names every model, each as made for demonstration", async () => {
    const models = (await client.models.list()).data
    expect(models.map((model) => model.id)).toEqual([
      'demo/echo',
      'demo/lorem',
      'demo/tools',
      'demo/task',
      'demo/refusal',
    ])
    expect(new Set(models.map((model) => model.owned_by))).toEqual(new Set(['demonstration']))
    const single = await fetch(`${url}/models/demo/echo`)
    expect(await single.json()).toEqual(models[0])
  })
})
