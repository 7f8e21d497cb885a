import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
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
})
