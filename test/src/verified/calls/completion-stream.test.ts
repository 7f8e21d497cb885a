import OpenAI from 'openai'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { verifyStream } from '#attestation/verify-stream.ts'
import { AT_ONCE_MS } from '../../../support/at-once.ts'
import { CHAT_REQUEST, outcomeOf, postChat, VERIFIED_PATH } from '../../../support/calls.ts'
import {
  GATEWAY_HOOK_TIMEOUT_MS,
  startGateway,
  type TestGateway,
} from '../../../support/gateway.ts'
import { connectRaw } from '../../../support/raw-http.ts'
import {
  type ArrivedCall,
  answerFault,
  answerWhole,
  namedEvent,
} from '../../../support/scripted-enclave.ts'

const KEEP_ALIVE_MS = 150
const PING = ': ping\n\n'

let gateway: TestGateway
beforeAll(async () => {
  gateway = await startGateway({ settings: { keepAliveMs: KEEP_ALIVE_MS } })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(() => gateway.stop(), GATEWAY_HOOK_TIMEOUT_MS)
beforeEach(() => gateway.enclave.setScript((arrived) => streamAll(arrived)))

const REQUEST = { ...CHAT_REQUEST, stream: true }
const sleep = (durationMs: number) => new Promise((resolve) => setTimeout(resolve, durationMs))
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

describe('a verified stream', () => {
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
      expect.arrayContaining([
        'stream hash',
        'signature',
        'receipt',
        'receipt in log',
        'tree head',
      ]),
    )
    expect(verifyStream(chunks.toSpliced(1, 1), { request: REQUEST }).ok).toBe(false)
  })

  it('a verified stream of an enclave before protocol version 2 has the proof in a chunk of its own', async () => {
    gateway.enclave.setScript((arrived) => {
      begin(arrived)
      const sealed = arrived.seal(assembleCompletion(CHUNKS), 'complete', CHUNKS)
      arrived.response.end(CHUNKS.map(encode).join('') + namedEvent('sealed', sealed))
    })
    const text = withoutPings(await (await postChat(gateway, REQUEST)).text())
    expect(text.startsWith(CHUNKS.map(encode).join(''))).toBe(true)
    expect(dataOf(text).at(-1)).toMatchObject({
      choices: [],
      usage: null,
      hash: expect.any(String),
    })
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

  it('a verified stream is read whole by the official SDK, with its usage', async () => {
    gateway.enclave.setScript((arrived) => streamAll(arrived, [...CHUNKS, USAGE_CHUNK]))
    const client = new OpenAI({
      apiKey: gateway.key,
      baseURL: `${gateway.url}/v1/verified`,
      maxRetries: 0,
    })
    const stream = client.chat.completions.stream({
      model: 'demo/echo',
      messages: [{ role: 'user', content: 'hello' }],
      stream_options: { include_usage: true },
    })
    const completion = await stream.finalChatCompletion()
    expect(completion.choices[0]?.message.content).toBe('héllo 😀\u0000')
    expect(completion.usage).toMatchObject({ total_tokens: 3 })
    expect(completion).toHaveProperty('receipt')
  })

  it('a verified stream gives each chunk as soon as it comes', async () => {
    const goOn = Promise.withResolvers<void>()
    gateway.enclave.setScript(async (arrived) => {
      begin(arrived)
      arrived.response.write(encode(CHUNKS[0] ?? {}))
      await goOn.promise
      arrived.response.end(namedEvent('sealed', arrived.seal(assembleCompletion(CHUNKS))))
    })
    const reader = (await postChat(gateway, REQUEST)).body?.getReader()
    const first = await reader?.read()
    expect(Buffer.from(first?.value ?? []).toString()).toBe(encode(CHUNKS[0] ?? {}))
    goOn.resolve()
    await reader?.cancel()
  })
})

describe('faults', () => {
  it('faults of a verified stream before the answer has begun are answered with their status', async () => {
    gateway.enclave.setScript(
      answerFault({ status: 404, code: 'unsupported_model', message: 'no' }),
    )
    expect(await outcomeOf(await postChat(gateway, REQUEST))).toEqual([404, 'unsupported_model'])
    gateway.enclave.setScript(
      answerFault({ status: 422, code: 'invalid_request', message: 'no', loc: ['body', 'n'] }),
    )
    expect(await outcomeOf(await postChat(gateway, REQUEST))).toEqual([422, ['body.n']])
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

  it('faults of a verified stream are thrown by the official SDK', async () => {
    gateway.enclave.setScript((arrived) => {
      begin(arrived)
      const fault = { status: 502, code: 'provider_error', message: 'The provider broke off.' }
      arrived.response.end(encode(CHUNKS[0] ?? {}) + namedEvent('fault', fault))
    })
    const client = new OpenAI({
      apiKey: gateway.key,
      baseURL: `${gateway.url}/v1/verified`,
      maxRetries: 0,
    })
    const stream = await client.chat.completions.create({ ...CHAT_REQUEST, stream: true } as never)
    const read = async () => {
      for await (const _ of stream as unknown as AsyncIterable<unknown>);
    }
    await expect(read()).rejects.toThrow('The provider broke off.')
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
      arrived.response.write(encode(CHUNKS[0] ?? {}))
      await sleep(30)
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
      arrived.response.write(encode(CHUNKS[0] ?? {}))
      await sleep(30)
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

  it('the line of a stream that went well has no code of a fault', async () => {
    const [line] = await linesOf('went-well')
    expect(line).toMatchObject({ msg: 'request', status: 200, isWhole: true })
    expect(line).not.toHaveProperty('error')
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
    expect(await outcomeOf(await postChat(gateway, REQUEST))).toEqual([
      500,
      'internal_server_error',
    ])
  })
})

describe('keep-alive', () => {
  it('the keep-alive of a verified stream begins it when the enclave is slow, and goes on between chunks', async () => {
    const pinged = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const
    gateway.enclave.setScript(async (arrived) => {
      await pinged[0].promise
      begin(arrived)
      arrived.response.write(encode(CHUNKS[0] ?? {}))
      await pinged[1].promise
      arrived.response.end(namedEvent('sealed', arrived.seal(assembleCompletion(CHUNKS))))
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

  it('the keep-alive of a verified stream turns faults after it into error events', async () => {
    gateway.enclave.setScript(async (arrived) => {
      await sleep(2 * KEEP_ALIVE_MS)
      answerFault({ status: 422, code: 'invalid_request', message: 'late' })(arrived)
    })
    const text = await (await postChat(gateway, REQUEST)).text()
    expect(text).toMatch(/^(: ping\n\n)+event: error\ndata: \{"response":"NOK"/)
    expect(text).not.toContain('[DONE]')
  })
})

describe('a caller who leaves', () => {
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
  ])('a caller who leaves %s ends the call to the enclave at once', async (_, script) => {
    gateway.enclave.setScript(script)
    const before = gateway.enclave.calls.length
    const connection = await connectRaw(gateway.port)
    const body = JSON.stringify(REQUEST)
    connection.write(
      `POST ${VERIFIED_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${gateway.key}\r\n` +
        `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    await expect.poll(() => gateway.enclave.calls.length).toBe(before + 1)
    await sleep(50)
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
})

it('a reader who does not read holds the enclave back, and bounds what is held', async () => {
  let writtenBytes = 0
  const part = encode(chunkOf({ content: 'x'.repeat(64 * 1024) }))
  gateway.enclave.setScript(async (arrived) => {
    begin(arrived)
    const isGone = arrived.left.then(() => true)
    const drained = () =>
      new Promise<false>((resolve) => arrived.response.once('drain', () => resolve(false)))
    while (writtenBytes < 200e6) {
      writtenBytes += part.length
      if (!arrived.response.write(part) && (await Promise.race([isGone, drained()]))) return
    }
  })
  const connection = await connectRaw(gateway.port)
  const body = JSON.stringify(REQUEST)
  connection.socket.pause()
  connection.write(
    `POST ${VERIFIED_PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${gateway.key}\r\n` +
      `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  await expect.poll(() => writtenBytes).toBeGreaterThan(0)
  let before = -1
  while (before !== writtenBytes) {
    before = writtenBytes
    await sleep(300)
  }
  expect(writtenBytes).toBeLessThan(30e6)
  connection.socket.destroy()
  await newest()?.left
})
