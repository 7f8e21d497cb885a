import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDemoServer } from '#src/local/demo/server.ts'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import {
  answerWith as answerChatWith,
  type ScriptedBackend,
  startScriptedBackend,
} from '../support/scripted-backend.ts'
import { answerWith } from '../support/scripted-node.ts'

const demo = createDemoServer({ delayMs: 0, now: Date.now })
let stage: PlainStage
let scripted: ScriptedBackend
let openai: OpenAI
/** The bodies that the scripted backend received in other dialects, as texts. */
const bodies: string[] = []
/** How the scripted backend answers in other dialects. */
let answer: (response: ServerResponse, path: string) => void = (response) => response.end()

beforeAll(async () => {
  demo.listen(0, '127.0.0.1')
  await once(demo, 'listening')
  const demoUrl = `http://127.0.0.1:${(demo.address() as AddressInfo).port}`
  scripted = await startScriptedBackend(
    answerChatWith('chat'),
    ['scripted'],
    0,
    async (request, response) => {
      let text = ''
      for await (const part of request.setEncoding('utf8')) text += part
      if (text === '{') {
        // It serves all but Messages. One answer is that of llama.cpp.
        const statuses = { '/v1/responses': 500, '/v1/completions': 422 }
        response.writeHead(statuses[request.url as keyof typeof statuses] ?? 404).end()
        return
      }
      bodies.push(text)
      answer(response, request.url ?? '')
    },
  )
  stage = await openPlainStage({ limits: { waitMs: 300 } })
  const { url, key } = stage.gateway
  openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 })
  await stage.startAgent({ backendUrl: demoUrl, models: ['demo/echo', 'demo/tools'] })
  await stage.startAgent({ backendUrl: scripted.url, models: ['scripted'] })
  await stage.connect({ model: 'old', answer: answerWith('chat only') })
})
afterAll(async () => {
  await stage.stop()
  await scripted.stop()
  demo.closeAllConnections()
  demo.close()
})

const post = (path: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
  fetch(stage.gateway.url + path, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${stage.gateway.key}`,
      'content-type': 'application/json',
      ...headers,
    },
    body: JSON.stringify(body),
  })
const faultOf = async (reply: Response) => {
  const body = (await reply.json()) as {
    readonly error: { readonly code: string; readonly message: string }
  }
  return { status: reply.status, code: body.error.code, message: body.error.message }
}
const events = (response: ServerResponse, ...texts: readonly string[]) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.end(texts.join(''))
}
const eventOf = (data: { readonly type: string; readonly [name: string]: unknown }) =>
  `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`
const RESPONSE = { id: 'resp_1', object: 'response', created_at: 1, model: 'scripted', output: [] }
const CREATED = eventOf({
  type: 'response.created',
  sequence_number: 0,
  response: { ...RESPONSE, status: 'in_progress' },
})
const COMPLETED = eventOf({
  type: 'response.completed',
  sequence_number: 1,
  response: {
    ...RESPONSE,
    status: 'completed',
    usage: { input_tokens: 9, output_tokens: 3, total_tokens: 12 },
  },
})

const asked = { model: 'scripted', input: 'hello' }
const user = (content: unknown) => ({ role: 'user', content })

describe('the official SDKs, over a real agent', () => {
  it('Responses come whole and streamed, with tool calls', async () => {
    const whole = await openai.responses.create({ model: 'demo/echo', input: 'hello' })
    expect(whole.output_text).toContain('hello')
    const stream = openai.responses.stream({ model: 'demo/echo', input: 'hello' })
    let text = ''
    stream.on('response.output_text.delta', ({ delta }) => {
      text += delta
    })
    const final = await stream.finalResponse()
    expect(final.output_text).toBe(whole.output_text)
    expect(text).toBe(whole.output_text)
    const parameters = { type: 'object', properties: {}, additionalProperties: false }
    const called = await openai.responses.create({
      model: 'demo/tools',
      input: 'weather',
      tools: [{ type: 'function', name: 'get_weather', strict: true, parameters }],
      tool_choice: 'required',
    })
    expect(called.output.some(({ type }) => type === 'function_call')).toBe(true)
  })

  it('a text completion passes as the backend writes it', async () => {
    const chunk = (text: string, finish: string | null) =>
      `data: ${JSON.stringify({ id: 'c', object: 'text_completion', created: 1, model: 'scripted', choices: [{ index: 0, text, finish_reason: finish }] })}\n\n`
    answer = (response) =>
      events(response, chunk('a', null), chunk('b', 'stop'), 'data: [DONE]\n\n')
    const prompt = { model: 'scripted', prompt: 'hello' }
    const stream = await openai.completions.create({ ...prompt, stream: true })
    let text = ''
    for await (const { choices } of stream) text += choices[0]?.text ?? ''
    expect(text).toBe('ab')
    expect(JSON.parse(bodies.at(-1) ?? '')).toEqual({ ...prompt, stream: true })
  })
})

describe('what passes', () => {
  it('events keep the bytes of their names and data, and the request its members', async () => {
    const odd = 'event: response.created\ndata: { "type":"response.created", "n":1.50 }\n\n'
    answer = (response) => events(response, ': comment\n\n', odd, CREATED, COMPLETED)
    const request = { ...asked, stream: true, text: { verbosity: 'low' }, odd: null }
    const reply = await post('/v1/responses', request)
    expect(reply.headers.get('content-type')).toContain('text/event-stream')
    expect(await reply.text()).toBe(odd + CREATED + COMPLETED)
    expect(JSON.parse(bodies.at(-1) ?? '')).toEqual(request)
  })

  // https://github.com/zendev-sh/goai/issues/70
  it('an event that repeats a long answer keeps its bytes', async () => {
    const completed = COMPLETED.replace('"output":[]', `"output":["${'é'.repeat(750_000)}"]`)
    answer = (response) => events(response, CREATED, completed)
    const reply = await post('/v1/responses', { ...asked, stream: true })
    expect((await reply.text()) === CREATED + completed).toBe(true)
  })

  it('a whole answer keeps its bytes, and may be long', async () => {
    const text = `{ "id": "resp_1",  "pad": "${'é'.repeat(300_000)}", "usage": {"input_tokens": 4, "output_tokens": 2} }`
    answer = (response) => response.writeHead(200, { 'content-type': 'application/json' }).end(text)
    const reply = await post('/v1/responses', asked)
    expect(await reply.text()).toBe(text)
  })

  it('the same Idempotency-Key gets the same events, and the node is asked once', async () => {
    answer = (response) => events(response, CREATED, COMPLETED)
    const headers = { 'idempotency-key': 'dialect-1' }
    const first = await (await post('/v1/responses', { ...asked, stream: true }, headers)).text()
    const count = bodies.length
    const again = await post('/v1/responses', { ...asked, stream: true }, headers)
    expect(again.headers.get('idempotent-replayed')).toBe('true')
    expect(await again.text()).toBe(first)
    expect(bodies).toHaveLength(count)
    expect(await faultOf(await post('/v1/responses', asked, headers))).toMatchObject({
      status: 409,
    })
  })

  it.each([
    ['before any text', ''],
    ['after text', eventOf({ type: 'response.output_text.delta', sequence_number: 1, delta: 'a' })],
  ])("a backend's error event %s is not stored under the Idempotency-Key", async (when, text) => {
    const failed = eventOf({
      type: 'response.failed',
      sequence_number: 2,
      response: { ...RESPONSE, status: 'failed', error: { code: 'server_error', message: 'odd' } },
    })
    const headers = { 'idempotency-key': `failed ${when}`.replaceAll(' ', '-') }
    const ask = async () => post('/v1/responses', { ...asked, stream: true }, headers)
    answer = (response) => events(response, CREATED, text, failed)
    const first = await (await ask()).text()
    if (text === '') expect(first).toContain('node_error')
    else expect(first).toBe(CREATED + text + failed)
    answer = (response) => events(response, CREATED, COMPLETED)
    const again = await ask()
    expect(again.headers.get('idempotent-replayed')).toBeNull()
    expect(await again.text()).toBe(CREATED + COMPLETED)
  })
})

// https://github.com/BerriAI/litellm/issues/30043
describe('the count of tokens', () => {
  const count = (body: object) => post('/v1/messages/count_tokens', body)

  it('a count is an estimate that grows with the request, and asks no node', async () => {
    const asks = bodies.length
    const client = new Anthropic({
      baseURL: stage.gateway.url,
      apiKey: stage.gateway.key,
      authToken: null,
      maxRetries: 0,
    })
    const tokensOf = async (content: string) => {
      const messages = [{ role: 'user' as const, content }]
      return (await client.messages.countTokens({ model: 'scripted', messages })).input_tokens
    }
    const short = await tokensOf('hello')
    expect(short).toBeGreaterThan(0)
    expect((await tokensOf('hello'.repeat(800))) - short).toBeCloseTo(999, -1)
    expect(bodies).toHaveLength(asks)
  })

  it('a count for an unknown model, or for none, is refused in the form of Anthropic', async () => {
    const messages = [user('hello')]
    const refused = [
      [await count({ model: 'nobody', messages }), 404, 'not_found_error', 'not_found'],
      [await count({ messages }), 400, 'invalid_request_error', 'validation_failed'],
    ] as const
    for (const [reply, status, type, code] of refused) {
      expect(reply.status).toBe(status)
      expect(await reply.json()).toMatchObject({
        type: 'error',
        error: { type, code },
        request_id: reply.headers.get('request-id'),
      })
    }
  })
})

describe('what is refused', () => {
  it('a model whose nodes do not speak the dialect is refused, with the paths that work', async () => {
    expect(await faultOf(await post('/v1/responses', { model: 'old', input: 'x' }))).toEqual({
      status: 400,
      code: 'unsupported_dialect',
      message: 'No node of this model serves /v1/responses: use /v1/chat/completions',
    })
    const reply = await post('/v1/messages', { model: 'scripted', messages: [] })
    expect(reply.headers.get('request-id')).toMatch(/^req_/)
    expect(await faultOf(reply)).toMatchObject({
      status: 400,
      message:
        'No node of this model serves /v1/messages: use /v1/chat/completions or /v1/responses or /v1/completions',
    })
    expect(
      await faultOf(await post('/v1/completions', { model: 'old', prompt: 'x' })),
    ).toMatchObject({ status: 400, code: 'unsupported_dialect' })
  })

  it('an old node still answers chat', async () => {
    const reply = await post('/v1/chat/completions', {
      model: 'old',
      messages: [{ role: 'user', content: 'hi' }],
    })
    expect(await reply.text()).toContain('chat only')
  })

  it.each([
    ['/v1/responses', { model: 'nobody', input: 'x' }, 'unsupported_model'],
    ['/v1/responses', { input: 'x' }, 'validation_failed'],
    ['/v1/responses', { ...asked, previous_response_id: 'r' }, 'unsupported_request_parameter'],
    [
      '/v1/messages',
      {
        model: 'demo/echo',
        max_tokens: 1,
        messages: [
          {
            role: 'user',
            content: [{ type: 'image', source: { type: 'url', url: 'http://10.0.0.1/' } }],
          },
        ],
      },
      'unsupported_request_parameter',
    ],
  ])('a call of %s that no node may get is refused with 400: %j', async (path, body, code) => {
    expect(await faultOf(await post(path, body))).toMatchObject({ status: 400, code })
  })

  // https://github.com/stdapi-ai/stdapi.ai/issues/131
  it('MCP servers, which a backend would call, are refused by the name of their member', async () => {
    const messages = { model: 'demo/echo', max_tokens: 1, messages: [user('hi')] }
    const mcp_servers = [{ type: 'url', name: 'tools', url: 'https://mcp.example.org' }]
    const fault = await faultOf(await post('/v1/messages', { ...messages, mcp_servers }))
    expect([fault.status, fault.code]).toEqual([400, 'unsupported_request_parameter'])
    expect(fault.message).toMatch(/^mcp_servers is not supported: /)
    expect((await post('/v1/messages', { ...messages, mcp_servers: [] })).status).toBe(200)
  })

  // https://github.com/stdapi-ai/stdapi.ai/issues/131
  it('sources and titles that are addresses reach a node', async () => {
    const title = 'https://example.org/a'
    const text = { type: 'text', text: title }
    const content = [
      { type: 'search_result', source: title, title, content: [text] },
      { type: 'document', title, source: { type: 'text', media_type: 'text/plain', data: title } },
      text,
    ]
    const body = { model: 'demo/echo', max_tokens: 1, messages: [user(content)] }
    expect((await post('/v1/messages', body)).status).toBe(200)
  })

  it("the backend's refusal reaches the caller with its words, as 400", async () => {
    answer = (response) => {
      response
        .writeHead(422, { 'content-type': 'application/json' })
        .end('{"error":{"message":"input is odd"}}')
    }
    const fault = await faultOf(await post('/v1/responses', asked))
    expect(fault).toMatchObject({ status: 400, code: 'node_refused' })
    expect(fault.message).toContain('input is odd')
  })

  it('a stream that is cut before its last event ends with response.failed', async () => {
    const delta = eventOf({
      type: 'response.output_text.delta',
      sequence_number: 1,
      output_index: 0,
      content_index: 0,
      item_id: 'm',
      delta: 'cut',
    })
    answer = (response) => events(response, CREATED, delta)
    const text = await (await post('/v1/responses', { ...asked, stream: true })).text()
    expect(text.startsWith(CREATED + delta)).toBe(true)
    const [, last = ''] = text.split('event: response.failed\ndata: ')
    expect(JSON.parse(last)).toMatchObject({
      sequence_number: 2,
      response: { id: 'resp_1', status: 'failed', error: { code: 'node_error' } },
    })
  })
})

/** Answers of a backend that state an error, and what a caller of Responses sees. */
const TOO_LONG = { code: 'context_length_exceeded', message: 'too long', param: 'input' }
const NUMBERED = { error: { message: 'too long', type: 'BadRequestError', code: 400 } }
const COMPACTED = /event: response\.failed\n.*"code":"context_length_exceeded"/
it.each<[string, readonly string[], number, RegExp]>([
  // https://github.com/unslothai/unsloth/issues/10938
  ['an error event', [eventOf({ type: 'error', ...TOO_LONG })], 200, COMPACTED],
  [
    'response.failed',
    [CREATED, eventOf({ type: 'response.failed', response: { ...RESPONSE, error: TOO_LONG } })],
    200,
    COMPACTED,
  ],
  // https://github.com/BerriAI/litellm/issues/25492
  ['a status as its code', [`data: ${JSON.stringify(NUMBERED)}\n\n`], 200, /too long/],
  // https://github.com/lemonade-sdk/lemonade/issues/2826
  ['an error without the form of an event', [JSON.stringify(NUMBERED)], 200, /too long/],
  // https://github.com/router-for-me/CLIProxyAPI/issues/4904
  [
    '[DONE] in place of the last event',
    [CREATED, eventOf({ type: 'response.output_text.delta', delta: 'Hi' }), 'data: [DONE]\n\n'],
    200,
    /"Hi"[\s\S]*event: response\.failed/,
  ],
])('a stream of a backend with %s is told to the caller', async (_, sent, status, seen) => {
  answer = (response) => events(response, ...sent)
  const reply = await post('/v1/responses', { ...asked, stream: true })
  expect(reply.status).toBe(status)
  const text = await reply.text()
  expect(text).toMatch(seen)
  expect(text).not.toContain('response.completed')
})

it('a completion with a finish_reason and without [DONE] is whole', async () => {
  const piece = { choices: [{ index: 0, text: 'Hi', finish_reason: 'stop' }] }
  answer = (response) => events(response, `data: ${JSON.stringify(piece)}\n\n`)
  const reply = await post('/v1/completions', { model: 'scripted', prompt: 'a', stream: true })
  expect(await reply.text()).toMatch(/"Hi"[\s\S]*data: \[DONE\]\n\n$/)
})

// https://github.com/anthropics/claude-code/issues/78762
it('a history with an integer that a double cannot hold reaches the backend with its digits', async () => {
  answer = (response) => events(response, CREATED, COMPLETED)
  const body = `{"model":"scripted","stream":true,"input":[{"id":12345678901234567890}]}`
  const reply = await fetch(`${stage.gateway.url}/v1/responses`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${stage.gateway.key}`,
      'content-type': 'application/json',
    },
    body,
  })
  await reply.text()
  expect(bodies.at(-1)).toContain('{"id":12345678901234567890}')
})
