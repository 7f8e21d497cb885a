import { beforeEach, expect, it } from 'vitest'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { verifyStream } from '#attestation/verify-stream.ts'
import { CHAT_REQUEST, outcomeOf, postChat } from '../../support/calls.ts'
import { useGateway } from '../../support/gateway.ts'
import {
  type ArrivedCall,
  answerFault,
  answerWhole,
  namedEvent,
} from '../../support/scripted-enclave.ts'
import { until } from '../../support/until.ts'

const gateway = await useGateway()
beforeEach(() => gateway.enclave.setScript(answerWhole({})))

const newKey = () => `key-${crypto.randomUUID()}`
const post = (key: string, body: unknown = CHAT_REQUEST) =>
  postChat(gateway, body, { headers: { 'idempotency-key': key } })
const postPlain = (key: string, body: object = CHAT_REQUEST) =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${gateway.key}`,
      'content-type': 'application/json',
      'idempotency-key': key,
    },
    body: JSON.stringify(body),
  })
const chunksOf = (text: string): readonly JsonObject[] =>
  text
    .split('\n\n')
    .filter((event) => event.startsWith('data: {'))
    .map((event) => JSON.parse(event.slice('data: '.length)))

const CHUNK = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 5, model: 'demo/echo' }
const choice = (delta: JsonObject, finish_reason: string | null = null) => ({
  choices: [{ index: 0, delta, finish_reason, logprobs: null }],
})
const CHUNKS = [
  { ...CHUNK, ...choice({ role: 'assistant', content: '' }) },
  { ...CHUNK, ...choice({ content: 'hel' }) },
  { ...CHUNK, ...choice({ content: 'lo' }) },
  { ...CHUNK, ...choice({}, 'stop') },
]

const USAGE_CHUNK = { ...CHUNK, choices: [], usage: { total_tokens: 3 } }

function streamChunks(): void {
  gateway.enclave.setScript((arrived) => {
    arrived.response.writeHead(200, { 'content-type': 'text/event-stream' })
    writeStream(arrived)
  })
}

function writeStream({ response, seal }: ArrivedCall): void {
  for (const chunk of CHUNKS.slice(0, -1)) response.write(`data: ${canonicalizeJson(chunk)}\n\n`)
  response.write(namedEvent('last', CHUNKS.at(-1) ?? {}))
  response.end(
    namedEvent('sealed', seal(assembleCompletion([...CHUNKS, USAGE_CHUNK]), 'complete', CHUNKS)),
  )
}

it('a verified completion with an idempotency key is made once, and given again to the byte', async () => {
  const key = newKey()
  const before = gateway.enclave.calls.length
  const first = await post(key)
  const again = await post(key)
  expect([first.status, again.status]).toEqual([200, 200])
  expect(first.headers.get('idempotent-replayed')).toBeNull()
  expect(again.headers.get('idempotent-replayed')).toBe('true')
  expect(await again.text()).toBe(await first.text())
  expect(gateway.enclave.calls).toHaveLength(before + 1)
})

it('a caller who repeats a verified completion that is under way is told to ask again', async () => {
  const key = newKey()
  const { promise: isAsked, resolve: asked } = Promise.withResolvers<void>()
  const { promise: goOn, resolve: go } = Promise.withResolvers<void>()
  gateway.enclave.setScript(async (arrived) => {
    asked()
    await goOn
    await answerWhole({})(arrived)
  })
  const first = post(key)
  await isAsked
  const meanwhile = await post(key)
  expect(meanwhile.headers.get('retry-after')).toBe('1')
  expect(meanwhile.headers.get('x-should-retry')).toBeNull()
  expect(await outcomeOf(meanwhile)).toEqual([409, 'idempotency_in_progress'])
  go()
  expect((await first).status).toBe(200)
})

it('an idempotency key of a verified completion is refused for another body, and not to be tried again', async () => {
  const key = newKey()
  await post(key)
  const other = await post(key, { ...CHAT_REQUEST, user: 'other' })
  expect(other.headers.get('x-should-retry')).toBe('false')
  expect(await outcomeOf(other)).toEqual([409, 'idempotency_key_reused'])
  expect(await outcomeOf(await post(key, JSON.stringify(CHAT_REQUEST, null, 1)))).toEqual([
    409,
    'idempotency_key_reused',
  ])
  expect(await outcomeOf(await postPlain(key))).toEqual([409, 'idempotency_key_reused'])
})

it('a verified completion is made anew after the provider refused it, with a mended body too', async () => {
  const key = newKey()
  gateway.enclave.setScript(answerFault({ status: 400, code: 'provider_refused', message: 'no' }))
  expect(await outcomeOf(await post(key))).toEqual([400, 'provider_refused'])
  gateway.enclave.setScript(answerWhole({}))
  expect((await post(key, { ...CHAT_REQUEST, user: 'mended' })).status).toBe(200)
})

it.each([false, true])(
  'a verified completion goes on when its caller leaves, and is given to him later: stream %s',
  async (stream) => {
    const key = newKey()
    const body = { ...CHAT_REQUEST, stream }
    const abort = new AbortController()
    const { promise: goOn, resolve: go } = Promise.withResolvers<void>()
    const { promise: hasEnded, resolve: ended } = Promise.withResolvers<void>()
    gateway.enclave.setScript(async (arrived) => {
      expect(arrived.call.outlives_gateway).toBe(true)
      if (stream) arrived.response.writeHead(200, { 'content-type': 'text/event-stream' })
      abort.abort()
      await goOn
      if (stream) writeStream(arrived)
      else await answerWhole({})(arrived)
      ended()
    })
    await postChat(gateway, body, {
      headers: { 'idempotency-key': key },
      signal: abort.signal,
    }).catch(() => null)
    const before = gateway.enclave.calls.length
    expect(await outcomeOf(await post(key, body))).toEqual([409, 'idempotency_in_progress'])
    go()
    await hasEnded
    await until('its answer', async () => (await post(key, body)).status === 200)
    expect((await post(key, body)).headers.get('idempotent-replayed')).toBe('true')
    expect(gateway.enclave.calls).toHaveLength(before)
  },
)

it('a verified completion of which no whole answer came is not made again, and later callers are told so', async () => {
  const key = newKey()
  gateway.enclave.setScript(
    answerFault({ status: 504, code: 'provider_timeout', message: 'slow', may_be_made: true }),
  )
  expect(await outcomeOf(await post(key))).toEqual([504, 'provider_timeout'])
  gateway.enclave.setScript(answerWhole({}))
  const before = gateway.enclave.calls.length
  let outcome: readonly unknown[] = []
  await until('the outcome', async () => {
    outcome = await outcomeOf(await post(key))
    return outcome[1] !== 'idempotency_in_progress'
  })
  expect(outcome).toEqual([409, 'idempotency_outcome_unknown'])
  expect(gateway.enclave.calls).toHaveLength(before)
})

it('a repeated stream amounts to the same as the first one, with the same proof', async () => {
  streamChunks()
  for (const includesUsage of [false, true]) {
    const key = newKey()
    const body = {
      ...CHAT_REQUEST,
      stream: true,
      ...(includesUsage ? { stream_options: { include_usage: true } } : {}),
    }
    const first = chunksOf(await (await post(key, body)).text())
    const reply = await post(key, body)
    const text = await reply.text()
    const again = chunksOf(text)
    expect(reply.headers.get('content-type')).toContain('text/event-stream')
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
    const proofOf = ({ hash, tx_hash, receipt }: JsonObject = {}) => ({ hash, tx_hash, receipt })
    expect(proofOf(again.at(-1))).toEqual(proofOf(first.at(-1)))
    const { usage, ...said } = assembleCompletion(again)
    expect(usage).toEqual({ total_tokens: 3 })
    expect(canonicalizeJson(said)).toBe(canonicalizeJson(assembleCompletion(first)))
    const report = verifyStream(again, { request: body, idempotent: true })
    expect(report.ok).toBe(true)
    expect(report.checks.find(({ name }) => name === 'response hash')?.outcome).toBe('passed')
    expect(again[0]).toMatchObject({
      choices: [{ delta: { role: 'assistant', content: '' } }],
      usage: null,
    })
  }
})

it.each(['', ' ', 'two words', 'x'.repeat(256), 'ü'])(
  'a verified completion is refused with the idempotency key %j',
  async (key) => {
    const before = gateway.enclave.calls.length
    const reply = await postChat(gateway, CHAT_REQUEST, {
      headers: { 'idempotency-key': Buffer.from(key).toString('latin1') },
    })
    expect(await outcomeOf(reply)).toEqual([422, ['header.idempotency-key']])
    expect(gateway.enclave.calls).toHaveLength(before)
  },
)

it('a plain completion with an idempotency key is made once, and given again to the byte', async () => {
  const key = newKey()
  const first = await postPlain(key)
  const again = await postPlain(key)
  expect([first.status, again.status]).toEqual([200, 200])
  expect(again.headers.get('idempotent-replayed')).toBe('true')
  expect(await again.text()).toBe(await first.text())
})
