import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import OpenAI from 'openai'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { loadCl100k } from '#src/embeddings/byte-pairs.ts'
import { createEmbeddings } from '#src/embeddings/embeddings.ts'
import { createTokenCounter } from '#src/embeddings/token-counter.ts'
import { createDemoServer } from '#src/local/demo/server.ts'
import { createEndpoint } from '#src/upstream/endpoint.ts'
import { outcomeOf } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import {
  type EndpointScript,
  refuseWith,
  type ScriptedEndpoint,
  startScriptedEndpoint,
} from '../../support/scripted-endpoint.ts'

const MODELS = [
  { id: 'demo/embedding', inputTokensMax: 8_192 },
  { id: 'tiny', inputTokensMax: 5 },
]
const OPERATOR_KEY = 'sk-operator-planted'

/** The true wire format comes from the demonstration; faults are scripted. */
const demo = createDemoServer({ delayMs: 0, now: Date.now })
let demoUrl = ''
let upstream: ScriptedEndpoint
let gateway: TestGateway
let client: OpenAI

const relayToDemo: EndpointScript = async ({ body, url }, response) => {
  const answer = await fetch(demoUrl + url.replace(/^\/prefix/, ''), {
    method: 'POST',
    body: new Uint8Array(body),
  })
  response.writeHead(answer.status, { 'content-type': 'application/json' }).end(await answer.text())
}

beforeAll(async () => {
  demo.listen(0, '127.0.0.1')
  await once(demo, 'listening')
  demoUrl = `http://127.0.0.1:${(demo.address() as AddressInfo).port}`
  upstream = await startScriptedEndpoint()
  const endpoint = createEndpoint({
    url: `${upstream.origin}/prefix/v1/`,
    headers: { authorization: `Bearer ${OPERATOR_KEY}` },
    timeoutMs: 60_000,
    answerBytesMax: 4 * 1024 * 1024,
  })
  const source = { endpoint, models: MODELS, batchInputsMax: 3 }
  const embeddings = createEmbeddings({ source, counter: createTokenCounter(loadCl100k) })
  gateway = await startGateway({ embeddings })
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key, maxRetries: 0 })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await gateway.stop()
  await upstream.stop()
  demo.close()
  demo.closeAllConnections()
}, GATEWAY_HOOK_TIMEOUT_MS)
beforeEach(() => upstream.setScript(relayToDemo))

function post(body: unknown, init: RequestInit = {}): Promise<Response> {
  return fetch(`${gateway.url}/v1/embeddings`, {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' },
    ...init,
  })
}

const request = { model: 'demo/embedding', input: 'hello world' }
const vector = (index: number, embedding: unknown) => ({ object: 'embedding', index, embedding })
const answerOf = (...data: readonly unknown[]) => ({
  object: 'list',
  data,
  model: 'other',
  usage: {},
})

it('POST /v1/embeddings answers in the form of the interface, and sends the operator’s key alone', async () => {
  const reply = await post({ ...request, user: 'u', encoding_format: null, dimensions: 3 })
  expect(reply.status).toBe(200)
  expect(await reply.json()).toEqual({
    object: 'list',
    model: 'demo/embedding',
    data: [vector(0, [expect.any(Number), expect.any(Number), expect.any(Number)])],
    usage: { prompt_tokens: 2, total_tokens: 2 },
  })
  const seen = upstream.requests.at(-1)
  expect(seen).toMatchObject({ method: 'POST', url: '/prefix/v1/embeddings' })
  expect(seen?.headers.authorization).toBe(`Bearer ${OPERATOR_KEY}`)
  expect(JSON.stringify(seen?.headers)).not.toContain(gateway.key)
  expect(seen?.json).toEqual({
    model: 'demo/embedding',
    input: ['hello world'],
    encoding_format: 'float',
    user: 'u',
    dimensions: 3,
  })
})

it.each([
  ['a text', 'hello', ['hello']],
  ['texts', ['a', 'b'], ['a', 'b']],
  ['tokens', [1, 2, 3], [[1, 2, 3]]],
  ['lists of tokens', [[1], [2, 3]], [[1], [2, 3]]],
])('POST /v1/embeddings takes %s', async (_, input, sent) => {
  const reply = await post({ ...request, input })
  expect(((await reply.json()) as { data: unknown[] }).data).toHaveLength(sent.length)
  expect(upstream.requests.at(-1)?.json).toMatchObject({ input: sent })
})

it('POST /v1/embeddings sends many inputs in batches, and gives them back in order', async () => {
  const input = Array.from({ length: 20 }, (_, index) => `text ${index}`)
  const before = upstream.requests.length
  const { data, usage } = await client.embeddings.create({ ...request, input })
  expect(upstream.requests.length - before).toBe(7)
  expect(data.map(({ index }) => index)).toEqual(input.map((_, index) => index))
  const alone = await client.embeddings.create({ ...request, input: 'text 13' })
  expect(data[13]?.embedding).toEqual(alone.data[0]?.embedding)
  expect(usage.prompt_tokens).toBe(20 * (alone.usage.prompt_tokens ?? 0))
})

it('POST /v1/embeddings refuses a token beyond 31 bits, and a model that is not served', async () => {
  const large = await post({ ...request, input: [[1], [2 ** 31]] })
  expect(await outcomeOf(large)).toEqual([422, ['body.input.1.0']])
  const unknown = await post({ ...request, model: 'gpt-4' })
  expect(await outcomeOf(unknown)).toEqual([404, 'unsupported_model'])
})

it('POST /v1/embeddings takes an input of exactly the model’s tokens, and refuses one more before anything is sent', async () => {
  // 4 and 6 tokens of cl100k_base: see the tests of the counter.
  upstream.setScript(() => answerOf(vector(0, [1])))
  expect((await post({ model: 'tiny', input: [1, 2, 3, 4, 5] })).status).toBe(200)
  expect((await post({ model: 'tiny', input: 'tiktoken is' })).status).toBe(200)
  const before = upstream.requests.length
  expect(await outcomeOf(await post({ model: 'tiny', input: [1, 2, 3, 4, 5, 6] }))).toEqual([
    422,
    ['body.input'],
  ])
  expect(await outcomeOf(await post({ model: 'tiny', input: 'tiktoken is great!' }))).toEqual([
    422,
    ['body.input'],
  ])
  expect(
    await outcomeOf(await post({ model: 'tiny', input: ['a', 'tiktoken is great!'] })),
  ).toEqual([422, ['body.input.1']])
  expect(upstream.requests.length).toBe(before)
})

it('POST /v1/embeddings counts usage itself where the endpoint does not, each batch by its own inputs', async () => {
  upstream.setScript(({ json }) =>
    answerOf(...(json as { input: unknown[] }).input.map((_, index) => vector(index, [1]))),
  )
  // 6, 7 and 1 token in the first batch, 7 and 1 in the second.
  const input = ['tiktoken is great!', '2 + 2 = 4', 'a', '2 + 2 = 4', 'a']
  const reply = await post({ ...request, input })
  expect(await reply.json()).toMatchObject({ usage: { prompt_tokens: 22, total_tokens: 22 } })
})

it('POST /v1/embeddings takes the other encoding than asked for, and the endpoint’s order by index', async () => {
  const base64 = Buffer.from(new Uint8Array([0, 0, 128, 63, 0, 0, 0, 192])).toString('base64')
  upstream.setScript(() => answerOf(vector(1, base64), vector(0, [0.1, 0.2])))
  expect(await (await post({ ...request, input: ['a', 'b'] })).json()).toMatchObject({
    data: [vector(0, [0.1, 0.2]), vector(1, [1, -2])],
  })
  upstream.setScript(() => answerOf(vector(0, [1, -2])))
  expect(await (await post({ ...request, encoding_format: 'base64' })).json()).toMatchObject({
    data: [vector(0, base64)],
  })
})

it.each<[string, EndpointScript, number, string]>([
  [
    'refuses',
    refuseWith(400, { error: { message: 'too odd', code: 'odd' } }),
    400,
    'provider_refused',
  ],
  [
    'rejects the operator’s key',
    refuseWith(401, { error: { message: OPERATOR_KEY } }),
    502,
    'provider_credential_rejected',
  ],
  ['is limited', refuseWith(429, {}, { 'retry-after': '7' }), 429, 'provider_refused'],
  ['redirects', refuseWith(307, {}, { location: 'http://127.0.0.1:9/' }), 502, 'provider_error'],
  ['breaks', refuseWith(500, { error: `no ${OPERATOR_KEY}` }), 502, 'provider_error'],
  ['answers something else', (_, response) => void response.end('<html>'), 502, 'provider_error'],
  ['answers null', () => null, 502, 'provider_error'],
  ['answers too few', () => answerOf(), 502, 'provider_error'],
  ['answers one twice', () => answerOf(vector(1, [1]), vector(1, [1])), 502, 'provider_error'],
  ['answers no number', () => answerOf(vector(0, [1, null])), 502, 'provider_error'],
  ['answers no floats', () => answerOf(vector(0, 'AAAA')), 502, 'provider_error'],
  ['answers infinity', () => answerOf(vector(0, 'AACAfw==')), 502, 'provider_error'],
  ['answers nothing', () => answerOf(vector(0, [])), 502, 'provider_error'],
  ['answers too much', () => answerOf(vector(0, 'A'.repeat(5_000_000))), 502, 'answer_too_large'],
  ['hangs up', (_, response) => void response.destroy(), 502, 'provider_unreachable'],
])('an endpoint that fails is reported to the caller: %s', async (_, script, status, code) => {
  upstream.setScript(script)
  const reply = await post(request)
  const text = await reply.clone().text()
  expect(await outcomeOf(reply)).toEqual([status, code])
  for (const hidden of [OPERATOR_KEY, upstream.origin]) expect(text).not.toContain(hidden)
  if (code === 'answer_too_large')
    expect(text).toContain('expected at most 4194304 bytes, got more. Ask for fewer images, inputs')
})

it('an endpoint that falls silent is given up when its time is over', async () => {
  upstream.setScript(() => undefined)
  const options = { url: upstream.origin, headers: {}, answerBytesMax: 1024 }
  const endpoint = createEndpoint({ ...options, timeoutMs: 100 })
  const source = { endpoint, models: MODELS, batchInputsMax: 3 }
  const embeddings = createEmbeddings({ source, counter: createTokenCounter(loadCl100k) })
  const inputs = { kind: 'texts', items: ['a'] } as const
  const asked = { model: 'tiny', inputs, encodingFormat: 'float', others: {} } as const
  const { signal } = new AbortController()
  const call = { request: asked, signal, reserve: () => undefined }
  const made = embeddings.create(call, await embeddings.count(call))
  await expect(made).rejects.toMatchObject({ code: 'provider_timeout', status: 504 })
  await endpoint.close()
})

it('POST /v1/embeddings gives the words of a long refusal, and the coding of a compressed one', async () => {
  const said = async () => JSON.parse(await (await post(request)).text()).error.message
  const detail = [{ loc: ['body', 'n'], msg: 'too large', input: 'x'.repeat(500_000) }]
  upstream.setScript(refuseWith(422, { detail }))
  expect(await said()).toBe('The provider refused the request: body.n: too large')
  upstream.setScript(refuseWith(429, { detail }, { 'content-encoding': 'gzip' }))
  expect(await said()).toBe('The provider refused the request: its answer is compressed (gzip)')
})

it('an endpoint that fails has its words, code and patience passed on where the request is at fault', async () => {
  upstream.setScript(
    refuseWith(400, { error: { message: 'too\u0007 odd', code: 'odd' } }, { 'retry-after': '3' }),
  )
  const reply = await post(request)
  expect(reply.headers.get('retry-after')).toBe('3')
  expect(await reply.json()).toMatchObject({
    error: { message: 'The provider refused the request: too  odd', provider_code: 'odd' },
  })
})

it('an endpoint that fails ends a call of many batches with one fault, and the other batches too', async () => {
  upstream.setScript((seen, response) =>
    JSON.stringify(seen.json).includes('poison')
      ? refuseWith(413, { error: { message: 'too much' } })(seen, response)
      : undefined,
  )
  const left = upstream.left()
  const input = ['a', 'b', 'c', 'd', 'e', 'f', 'poison', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o']
  expect(await outcomeOf(await post({ ...request, input }))).toEqual([413, 'provider_refused'])
  await expect.poll(() => upstream.left() - left).toBe(3)
})

it('a caller who leaves ends the endpoint’s call', async () => {
  const reached = new Promise<void>((resolve) => upstream.setScript(() => void resolve()))
  const left = upstream.left()
  const abort = new AbortController()
  const calling = post(request, { signal: abort.signal })
  await reached
  abort.abort()
  await expect(calling).rejects.toThrow()
  await expect.poll(() => upstream.left() - left).toBe(1)
})
