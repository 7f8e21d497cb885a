import { beforeEach, expect, it } from 'vitest'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { verifyStream } from '#attestation/verify-stream.ts'
import { AT_ONCE_MS } from '../../../support/at-once.ts'
import { CHAT_REQUEST, outcomeOf, postChat, VERIFIED_PATH } from '../../../support/calls.ts'
import { useGateway } from '../../../support/gateway.ts'
import { connectRaw } from '../../../support/raw-http.ts'
import { type ArrivedCall, answerWhole, namedEvent } from '../../../support/scripted-enclave.ts'

const KEEP_ALIVE_MS = 150
const PING = ': ping\n\n'

const gateway = await useGateway({ settings: { keepAliveMs: KEEP_ALIVE_MS } })
beforeEach(() => gateway.enclave.setScript((arrived) => streamAll(arrived)))

const REQUEST = { ...CHAT_REQUEST, stream: true }
const newest = () => gateway.enclave.calls.at(-1)

const chunkOf = (delta: object, finish: string | null = null): JsonObject => ({
  choices: [{ delta: { ...delta }, finish_reason: finish, index: 0, logprobs: null }],
  created: 1_700_000_000,
  id: 'chatcmpl-9',
  model: 'demo/echo',
  object: 'chat.completion.chunk',
  usage: null,
})

const CHUNKS = [
  chunkOf({ role: 'assistant', content: '' }),
  chunkOf({ content: 'héllo ' }),
  chunkOf({ content: '😀\u0000' }),
  chunkOf({}, 'stop'),
]
const USAGE_CHUNK = {
  ...chunkOf({}),
  choices: [],
  usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
}

const encode = (chunk: JsonObject) => `data: ${JSON.stringify(chunk)}\n\n`

function begin({ response }: ArrivedCall): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.flushHeaders()
}

/** Resolves when the first chunk has left. */
function writeFirst({ response }: ArrivedCall): Promise<void> {
  return new Promise((resolve) => {
    response.write(encode(CHUNKS[0] ?? {}), () => resolve())
  })
}

/** What ends a stream whose other chunks were given out. */
function endOf({ seal }: ArrivedCall, chunks: readonly JsonObject[] = CHUNKS): string {
  const sealed = seal(assembleCompletion(chunks), 'complete', chunks)
  return namedEvent('last', chunks.at(-1) ?? {}) + namedEvent('sealed', sealed)
}

function streamAll(arrived: ArrivedCall, chunks: readonly JsonObject[] = CHUNKS): void {
  begin(arrived)
  arrived.response.end(chunks.slice(0, -1).map(encode).join('') + endOf(arrived, chunks))
}

/** Pings come between events whenever their time is there. */
const withoutPings = (text: string) => text.replaceAll(': ping\n\n', '')

/** JSON of the data lines, without `[DONE]`. */
function dataOf(text: string): readonly JsonObject[] {
  const lines = text
    .split('\n')
    .filter((line) => line.startsWith('data: ') && line !== 'data: [DONE]')
  return lines.map((line) => JSON.parse(line.slice('data: '.length)))
}

/** What is logged of a stream that is asked for under this id, once it is over. */
async function linesOf(requestId: string): Promise<readonly Record<string, unknown>[]> {
  await (await postChat(gateway, REQUEST, { headers: { 'x-request-id': requestId } })).text()
  const read = () =>
    gateway.logLines.map((line) => JSON.parse(line)).filter((line) => line.requestId === requestId)
  await expect.poll(() => read().map(({ msg }) => msg)).toContain('request')
  return read()
}

it('a verified stream passes the chunks on byte for byte, the last with the proof, then [DONE]', async () => {
  const reply = await postChat(gateway, REQUEST, { headers: { 'x-request-id': 'abc' } })
  expect(reply.status).toBe(200)
  expect(Object.fromEntries(reply.headers)).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    'x-accel-buffering': 'no',
    'x-request-id': 'abc',
    'openai-processing-ms': expect.stringMatching(/^\d+$/),
  })
  const text = withoutPings(await reply.text())
  expect(text.startsWith(CHUNKS.slice(0, -1).map(encode).join(''))).toBe(true)
  expect(text.endsWith('\n\ndata: [DONE]\n\n')).toBe(true)
  const given = dataOf(text)
  expect(given).toHaveLength(CHUNKS.length)
  expect(given.at(-1)).toMatchObject({
    ...CHUNKS.at(-1),
    tx_hash: expect.stringMatching(/^0x/),
    log: { size: expect.any(Number), path: expect.any(Array) },
  })
  for (const { choices } of given) expect(choices).not.toEqual([])
})

it('a verified stream can be checked by a caller who kept the chunks', async () => {
  const chunks = dataOf(await (await postChat(gateway, REQUEST)).text())
  const { checks } = verifyStream(chunks, { request: REQUEST })
  expect(checks.filter(({ outcome }) => outcome === 'failed')).toEqual([])
  const passed = checks.filter(({ outcome }) => outcome === 'passed').map(({ name }) => name)
  expect(passed).toEqual(
    expect.arrayContaining(['stream hash', 'signature', 'receipt', 'receipt in log', 'tree head']),
  )
  expect(verifyStream(chunks.toSpliced(1, 1), { request: REQUEST }).ok).toBe(false)
})

it('a verified stream shows usage once to a caller who asked for it, and does not take it back', async () => {
  gateway.enclave.setScript((arrived) => streamAll(arrived, [...CHUNKS, USAGE_CHUNK]))
  const request = { ...REQUEST, stream_options: { include_usage: true } }
  const chunks = dataOf(await (await postChat(gateway, request)).text())
  expect(chunks.filter(({ usage }) => (usage ?? null) !== null)).toHaveLength(1)
  expect(chunks.at(-1)).toMatchObject({
    choices: [],
    usage: { total_tokens: 3 },
    hash: expect.any(String),
  })
})

it('faults of a verified stream in mid-stream are an error event, and no [DONE]', async () => {
  gateway.enclave.setScript((arrived) => {
    begin(arrived)
    const fault = { status: 502, code: 'provider_error', message: 'The provider broke off.' }
    const sealed = arrived.seal(assembleCompletion(CHUNKS.slice(0, 2)), 'upstream_error')
    arrived.response.end(
      encode(CHUNKS[0] ?? {}) + namedEvent('fault', fault) + namedEvent('sealed', sealed),
    )
  })
  const text = withoutPings(await (await postChat(gateway, REQUEST)).text())
  const reported = {
    status_code: 502,
    code: 'provider_error',
    message: 'The provider broke off.',
  }
  const error = { ...reported, type: 'server_error', param: null }
  const event = `event: error\ndata: ${JSON.stringify({ response: 'NOK', error })}\n\n`
  expect(text).toBe(encode(CHUNKS[0] ?? {}) + event)
})

it.each([
  [
    'an enclave that dies',
    ({ response }: ArrivedCall) => response.socket?.destroy(),
    'enclave_unavailable',
  ],
  ['an end without a seal', ({ response }: ArrivedCall) => response.end(), 'enclave_unavailable'],
  [
    'a seal that says the answer was not read',
    ({ response, seal }: ArrivedCall) =>
      response.end(namedEvent('sealed', seal({}, 'client_disconnected'))),
    'provider_error',
  ],
  [
    'an event that is none of the protocol',
    ({ response }: ArrivedCall) => response.end('event: sealed\ndata: {}\n\n'),
    'internal_server_error',
  ],
])('%s in mid-stream is an error event too', async (_, end, code) => {
  gateway.enclave.setScript(async (arrived) => {
    begin(arrived)
    await writeFirst(arrived)
    end(arrived)
  })
  const text = await (await postChat(gateway, REQUEST)).text()
  expect(text).toContain(`event: error\n`)
  expect(text).toContain(`"code":"${code}"`)
  expect(text).not.toContain('[DONE]')
})

it('faults of a verified stream in mid-stream have their code on the line of the call', async () => {
  gateway.enclave.setScript(async (arrived) => {
    begin(arrived)
    await writeFirst(arrived)
    arrived.response.socket?.destroy()
  })
  const lines = await linesOf('died-in-mid-stream')
  expect(lines.find(({ msg }) => msg === 'request')).toMatchObject({
    status: 200,
    isWhole: true,
    error: 'enclave_unavailable',
  })
  gateway.enclave.setScript(async (arrived) => {
    begin(arrived)
    arrived.response.write(encode(CHUNKS[0] ?? {}))
    arrived.response.end('event: sealed\ndata: {}\n\n')
  })
  const others = await linesOf('none-of-the-protocol')
  expect(others.find(({ msg }) => msg === 'request')).toMatchObject({
    error: 'internal_server_error',
  })
})

it('an answer that is streamed and should not be is a fault of ours, and is ended', async () => {
  gateway.enclave.setScript(begin)
  expect(await outcomeOf(await postChat(gateway, CHAT_REQUEST))).toEqual([
    500,
    'internal_server_error',
  ])
  await newest()?.left
})

it('a stream that is answered whole is a fault of ours', async () => {
  gateway.enclave.setScript(answerWhole({}))
  expect(await outcomeOf(await postChat(gateway, REQUEST))).toEqual([500, 'internal_server_error'])
})

it('the keep-alive of a verified stream begins it when the enclave is slow, and goes on between chunks', async () => {
  const pinged = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const
  gateway.enclave.setScript(async (arrived) => {
    await pinged[0].promise
    begin(arrived)
    arrived.response.write(encode(CHUNKS[0] ?? {}))
    await pinged[1].promise
    arrived.response.end(endOf(arrived, CHUNKS))
  })
  const reply = await postChat(gateway, REQUEST)
  expect(reply.status).toBe(200)
  let text = ''
  for await (const bytes of reply.body ?? []) {
    text += Buffer.from(bytes).toString()
    if (text.startsWith(PING.repeat(2))) pinged[0].resolve()
    if (text.includes(`}\n\n${PING}`)) pinged[1].resolve()
  }
  expect(text).toMatch(/^(: ping\n\n){2,}data: \{[^\n]*\n\n(: ping\n\n)+data: /)
  expect(text).toContain('[DONE]')
})

it.each([
  ['before the first chunk', () => {}],
  ['after the head', begin],
  [
    'in mid-stream',
    (arrived: ArrivedCall) => {
      begin(arrived)
      arrived.response.write(encode(CHUNKS[0] ?? {}))
    },
  ],
])('a caller who leaves %s ends the call to the enclave at once', async (when, script) => {
  gateway.enclave.setScript(script)
  const before = gateway.enclave.calls.length
  const connection = await connectRaw(gateway.port)
  const body = JSON.stringify(REQUEST)
  connection.write(
    `POST ${VERIFIED_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${gateway.key}\r\n` +
      `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  await expect.poll(() => gateway.enclave.calls.length).toBe(before + 1)
  if (when === 'in mid-stream') await connection.until(/data: /)
  const leftAtMs = performance.now()
  connection.socket.destroy()
  await newest()?.left
  expect(performance.now() - leftAtMs).toBeLessThan(AT_ONCE_MS)
})

it('a caller who leaves while its commit is awaited loses nothing: the record is in the history', async () => {
  const { size } = gateway.committer.status()
  const abort = new AbortController()
  gateway.enclave.setScript((arrived) => {
    streamAll(arrived)
    abort.abort()
  })
  await postChat(gateway, REQUEST, { signal: abort.signal })
    .then(
      (reply) => reply.text(),
      () => '',
    )
    .catch(() => '')
  await expect.poll(() => gateway.committer.status().size).toBe(size + 1)
})
