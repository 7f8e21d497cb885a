import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '#attestation/json/value.ts'
import type { NodeCall } from '#src/nodes/runs/dispatch.ts'
import { type DispatchCode, DispatchError } from '#src/nodes/runs/dispatch-error.ts'
import { CHAT_REQUEST, outcomeOf } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import {
  chunksOf,
  createScriptedDispatcher,
  HELLO,
  nodeChunk,
  nodeUsage,
} from '../../support/scripted-dispatcher.ts'

const KEEP_ALIVE_MS = 150
const PATHS = ['/v1/chat/completions', '/v1/dashboard/chat/completions']

const nodes = createScriptedDispatcher()
let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway({ settings: { keepAliveMs: KEEP_ALIVE_MS }, nodes })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)
beforeEach(() => nodes.setScript(() => chunksOf(...HELLO)))

const STREAM = { ...CHAT_REQUEST, stream: true }
const newest = () => nodes.calls.at(-1)

function post(
  body: unknown,
  { path = PATHS[0], ...init }: RequestInit & { readonly path?: string } = {},
) {
  return fetch(gateway.url + path, {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    headers: { authorization: `Bearer ${gateway.key}`, 'content-type': 'application/json' },
    ...init,
  })
}

const answer = async (body: unknown): Promise<JsonObject> =>
  (await (await post(body)).json()) as JsonObject
const streamText = async (body: unknown = STREAM) => (await post(body)).text()

/** JSON of the data lines, without `[DONE]`. */
function dataOf(text: string): readonly JsonObject[] {
  const lines = text
    .split('\n')
    .filter((line) => line.startsWith('data: ') && line !== 'data: [DONE]')
  return lines.map((line) => JSON.parse(line.slice('data: '.length)))
}

/** Chunks that begin, and then wait for the call to be aborted. */
async function* stalled(
  { signal }: NodeCall,
  ...chunks: readonly JsonObject[]
): AsyncGenerator<JsonObject> {
  yield* chunks
  await untilAborted(signal)
}

function untilAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason))
    if (signal.aborted) reject(signal.reason)
  })
}

const failing = (
  code: DispatchCode,
  details: ConstructorParameters<typeof DispatchError>[2] = {},
) => new DispatchError(code, 'words of ours', details)

describe.each(PATHS)('POST %s', (path) => {
  it("a chat route gives the completion that the node's chunks amount to", async () => {
    const reply = await post({ ...CHAT_REQUEST, top_k: 7 }, { path })
    expect(reply.status).toBe(200)
    expect(reply.headers.get('openai-processing-ms')).toMatch(/^\d+$/)
    expect(await reply.json()).toEqual({
      id: expect.stringMatching(/^chatcmpl-[0-9a-f]{32}$/),
      object: 'chat.completion',
      created: expect.closeTo(Date.now() / 1000, -1),
      model: 'demo/echo',
      service_tier: null,
      system_fingerprint: null,
      choices: [
        {
          index: 0,
          finish_reason: 'stop',
          logprobs: null,
          message: { role: 'assistant', content: 'hello', refusal: null, audio: null },
        },
      ],
      usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
    })
    expect(newest()).toMatchObject({
      accountId: gateway.accountId,
      model: 'demo/echo',
      request: { ...CHAT_REQUEST, top_k: 7 },
    })
  })
})

it('the usage of a completion is estimated where the node gave no usage, and says so', async () => {
  nodes.setScript(() => chunksOf(...HELLO.slice(0, -1)))
  const estimate = { prompt_tokens: 6, completion_tokens: 2, total_tokens: 8, estimated: true }
  expect((await answer(CHAT_REQUEST)).usage).toEqual(estimate)
  const asked = await streamText({ ...STREAM, stream_options: { include_usage: true } })
  expect(dataOf(asked).at(-1)?.usage).toEqual(estimate)
})

it.each<[DispatchCode, number, string]>([
  ['unsupported_model', 404, 'unsupported_model'],
  ['no_nodes', 503, 'no_available_inference_nodes'],
  ['request_too_large', 413, 'payload_too_large'],
  ['node_failed', 502, 'node_error'],
  ['node_lost', 502, 'node_error'],
  ['first_token_timeout', 504, 'node_timeout'],
  ['stopping', 503, 'shutting_down'],
])('the fault %s before an answer is %i %s', async (code, status, reported) => {
  nodes.setScript(() => Promise.reject(failing(code)))
  expect(await outcomeOf(await post(CHAT_REQUEST))).toEqual([status, reported])
  // Who asked for a stream gets a status too, unless the reason may pass.
  if (['unsupported_model', 'request_too_large', 'stopping'].includes(code))
    expect(await outcomeOf(await post(STREAM))).toEqual([status, reported])
})

it.each([
  [400, 400, 'node_refused'],
  [422, 422, 'node_refused'],
  [401, 502, 'node_error'],
  [429, 502, 'node_error'],
  [500, 502, 'node_error'],
  [null, 502, 'node_error'],
])("the backend's refusal with %s is told as %i %s", async (status, reported, code) => {
  nodes.setScript(() =>
    Promise.reject(failing('node_refused', { status, nodeMessage: 'context is too long' })),
  )
  const reply = await post(CHAT_REQUEST)
  expect(reply.status).toBe(reported)
  const text = await reply.text()
  expect(JSON.parse(text).error.code).toBe(code)
  expect(text.includes('context is too long')).toBe(code === 'node_refused')
})

async function* breaking(error: unknown): AsyncGenerator<JsonObject> {
  yield nodeChunk({ content: 'hel' })
  throw error
}

it.each<[DispatchCode, number, string]>([
  ['token_timeout', 504, 'node_timeout'],
  ['node_lost', 502, 'node_error'],
  ['node_failed', 502, 'node_error'],
  ['caller_too_slow', 408, 'caller_too_slow'],
])(
  'the fault %s in an answer is %i, and in a stream an error event without [DONE]',
  async (code, status, reported) => {
    nodes.setScript(() => breaking(failing(code)))
    expect(await outcomeOf(await post(CHAT_REQUEST))).toEqual([status, reported])
    const text = await streamText()
    expect(text).not.toContain('[DONE]')
    expect(text).toMatch(/event: error\ndata: [^\n]*\n\n$/)
    expect(dataOf(text).at(-1)).toMatchObject({ error: { status_code: status, code: reported } })
  },
)

it.each([
  ['no choice at all', [nodeUsage(1, 1)]],
  ['no end', [nodeChunk({ content: 'hel' })]],
  ['an unknown end', [nodeChunk({ content: 'hel' }, 'abort')]],
  ['what is no text', [nodeChunk({ content: 'hel' }), nodeChunk({ content: { a: 1 } }, 'stop')]],
])('a node that sends %s is blamed, and its caller is told the error', async (_, chunks) => {
  nodes.setScript(() => chunksOf(...chunks))
  expect(await outcomeOf(await post(CHAT_REQUEST))).toEqual([502, 'node_error'])
  const text = await streamText()
  expect(text).not.toContain('[DONE]')
  expect(dataOf(text).at(-1)).toMatchObject({ error: { code: 'node_error' } })
  expect(gateway.logLines.at(-2)).toContain('a_scripted_node')
})

it('a fault in an answer that is our own is logged, and says nothing outside', async () => {
  nodes.setScript(() => breaking(new Error('the secret of the house')))
  expect(await outcomeOf(await post(CHAT_REQUEST))).toEqual([500, 'internal_server_error'])
  const text = await streamText()
  expect(text).not.toContain('secret')
  expect(text).toContain('internal_server_error')
})

it.each([
  ['while the call is queued', CHAT_REQUEST, (call: NodeCall) => untilAborted(call.signal)],
  ['while a streamed call is queued', STREAM, (call: NodeCall) => untilAborted(call.signal)],
  [
    'during an answer',
    CHAT_REQUEST,
    (call: NodeCall) => stalled(call, nodeChunk({ content: 'a' })),
  ],
  ['in mid-stream', STREAM, (call: NodeCall) => stalled(call, nodeChunk({ content: 'a' }))],
])('a caller who leaves %s cancels the call', async (_, body, script) => {
  const arrived = Promise.withResolvers<NodeCall>()
  nodes.setScript((call) => {
    arrived.resolve(call)
    return script(call)
  })
  const leaving = new AbortController()
  const reply = post(body, { signal: leaving.signal }).then((response) => response.text())
  const { signal } = await arrived.promise
  const aborted = new Promise((resolve) => signal.addEventListener('abort', resolve))
  leaving.abort()
  await expect(reply).rejects.toThrow()
  await aborted
  expect(signal.reason).toMatchObject({ name: 'CallerLeftError' })
})

it('a stream is kept alive by comments, before the first token too', async () => {
  const goOn = Promise.withResolvers<void>()
  nodes.setScript(async () => {
    await goOn.promise
    return chunksOf(...HELLO)
  })
  const reply = await post(STREAM)
  const text = reply.text()
  setTimeout(goOn.resolve, KEEP_ALIVE_MS * 2.5)
  expect(await text).toMatch(/^(: ping\n\n){2,3}data: /)
})

it('a stream that has begun by a comment tells of a fault by an event', async () => {
  nodes.setScript(async () => {
    await new Promise((resolve) => setTimeout(resolve, KEEP_ALIVE_MS * 1.5))
    throw failing('unsupported_model')
  })
  const reply = await post(STREAM)
  expect(reply.status).toBe(200)
  expect(await reply.text()).toMatch(/^: ping\n\nevent: error\ndata: .*"unsupported_model"/)
})

it(
  'a stop ends streams that take too long with an error event, and then the nodes’ connections',
  async () => {
    let areStopped = false
    const scripted = createScriptedDispatcher()
    const stop = async () => {
      areStopped = true
    }
    const own = { ...scripted, stop }
    own.setScript((call) => stalled(call, nodeChunk({ content: 'a' })))
    const closing = await startGateway({ nodes: own, settings: { shutdownGraceMs: 200 } })
    const headers = { authorization: `Bearer ${closing.key}`, 'content-type': 'application/json' }
    const reply = await fetch(closing.url + PATHS[0], {
      method: 'POST',
      body: JSON.stringify(STREAM),
      headers,
    })
    const closed = closing.app.close()
    expect(areStopped).toBe(false)
    expect(await reply.text()).toContain('shutting_down')
    await closed
    expect(areStopped).toBe(true)
    await closing.stop()
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)
