import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { createServer as createSecureServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib'
import { afterEach, expect, it } from 'vitest'
import { type Backend, createBackend } from '#src/agent/backend.ts'
import { findBackend } from '#src/agent/find-backend.ts'
import { createAuthority } from '../../support/certificates.ts'
import {
  answerWith,
  type BackendScript,
  type ScriptedBackend,
  startScriptedBackend,
  textChunk,
  usageChunk,
  writeEvents,
} from '../../support/scripted-backend.ts'

const started: { stop(): Promise<void> }[] = []
afterEach(async () => {
  await Promise.all(started.splice(0).map((part) => part.stop()))
})

async function start(
  script: BackendScript,
  limits: NonNullable<Parameters<typeof createBackend>[0]['limits']> = {},
): Promise<{ readonly server: ScriptedBackend; readonly backend: Backend }> {
  const server = await startScriptedBackend(script)
  const backend = createBackend({ url: server.url, apiKey: 'backend-key', limits })
  started.push(server, { stop: () => backend.close() })
  return { server, backend }
}

/** A backend of other dialects that answers as the script says. */
async function startDialects(answer: (response: ServerResponse) => void): Promise<Backend> {
  const script = (_: unknown, response: ServerResponse) => answer(response)
  const server = await startScriptedBackend(answerWith('a'), ['model-a'], 0, script)
  const backend = createBackend({ url: server.url, apiKey: null })
  started.push(server, { stop: () => backend.close() })
  return backend
}

const NEVER = new AbortController().signal
const REQUEST = { model: 'model-a', messages: [{ role: 'user', content: 'hi' }] }

async function read(
  backend: Backend,
  signal = NEVER,
  request: object = REQUEST,
): Promise<readonly unknown[]> {
  const chunks: unknown[] = []
  for await (const batch of backend.streamChat({ ...request } as never, signal))
    chunks.push(...batch.map(({ chunk }) => chunk))
  return chunks
}

it('a backend streams with usage, whatever the request says, and nothing else is changed', async () => {
  const { server, backend } = await start(answerWith('a', 'b'))
  const request = {
    ...REQUEST,
    stream: false,
    stream_options: { include_usage: false, x: 1 },
    other: [1],
  }
  expect(await read(backend, NEVER, request)).toEqual([
    textChunk('a'),
    textChunk('b'),
    textChunk('', 'stop'),
    usageChunk(2),
  ])
  expect(server.requests).toEqual([
    { ...REQUEST, other: [1], stream: true, stream_options: { include_usage: true, x: 1 } },
  ])
})

// https://github.com/runpod-workers/worker-vllm/issues/57
it.each([
  [{ 'content-type': 'application/json' }, '{"error":{"message":"CUDA out of memory"}}', 'CUDA'],
  [{ 'content-type': 'application/json' }, '{}', 'application/json'],
  [{ 'content-type': 'text/html' }, '<html>', 'an HTML page'],
  // https://github.com/agentgateway/agentgateway/issues/621
  [{ 'content-type': 'text/event-stream', 'content-encoding': 'gzip' }, 'x', 'compressed'],
  [{ 'content-type': 'text/plain' }, '{"error":{"message":"CUDA"}}', '(text/plain): CUDA'],
  [{ 'content-type': 'text/plain' }, 'error: no data: no event', '(text/plain): error: no data'],
  [{ 'content-type': 'application/x-ndjson' }, '{"error":"CUDA"}\n', '(application/x-ndjson): C'],
  [{}, 'upstream connect error', '(no content type): upstream connect error'],
  [{ 'content-type': 'text/plain' }, '', '(text/plain)'],
])(
  'a backend that answers a stream with %j and %s is told by what came: %s',
  async (headers, body, words) => {
    const { backend } = await start((response) => {
      response.writeHead(200, headers)
      response.end(body)
    })
    await expect(read(backend)).rejects.toThrow(words)
  },
)

it.each([undefined, 'text/plain', 'application/octet-stream'])(
  'a stream of a backend with the content type %s is read like any other',
  async (type) => {
    const { backend } = await start((response) => {
      if (type !== undefined) response.setHeader('content-type', type)
      response.write(': a comment\r')
      const rest = `\n\ndata: ${JSON.stringify(textChunk('a', 'stop'))}\n\ndata: [DONE]\n\n`
      for (const part of rest.match(/.{1,7}|\n/g) ?? []) response.write(part)
      response.end()
    })
    expect(await read(backend)).toEqual([textChunk('a', 'stop')])
  },
)

const COMPRESSIONS = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync }
it.each(Object.entries(COMPRESSIONS))(
  "a backend's refusal that is compressed with %s keeps its words, its status and its wait",
  async (coding, compress) => {
    const { backend } = await start((response) => {
      const headers = { 'content-encoding': coding, 'retry-after': '7' }
      response.writeHead(429, headers).end(compress('{"error":{"message":"no backend-key"}}'))
    })
    const refused = { message: 'no [credential]', statusCode: 429, retryAfterSeconds: 7 }
    await expect(read(backend)).rejects.toMatchObject(refused)
    const images = { model: 'model-a', prompt: 'x', image: null, n: 1, size: '512x512' }
    await expect(backend.makeImages(images as never, NEVER)).rejects.toMatchObject(refused)
  },
)

it.each([
  ['zstd', Buffer.from('x')],
  ['gzip', Buffer.from('no gzip')],
  ['gzip', gzipSync(Buffer.alloc(2 * 1024 * 1024))],
])(
  "a backend's refusal is named by its coding when that cannot be undone: %s, %#",
  async (...[coding, body]) => {
    const { backend } = await start((response) => {
      response.writeHead(429, { 'content-encoding': coding, 'retry-after': '7' }).end(body)
    })
    await expect(read(backend)).rejects.toMatchObject({
      message: expect.stringContaining(`compressed its answer (${coding})`),
      statusCode: 429,
      retryAfterSeconds: 7,
    })
  },
)

it.each([
  ['text/event-stream', 'data: {}\n\n', 'data: {}'],
  ['text/html; charset=utf-8', '<html>', 'an HTML page'],
  ['text/plain', 'out of memory', '(text/plain): out of memory'],
  ['application/json', '{"detail":"out of memory"}', 'out of memory'],
  ['application/json', '{"object":"error","message":"out of memory","code":500}', 'out of'],
  ['application/json', '{"type":"error","error":{"message":"out of memory"}}', 'out of memory'],
])(
  'a backend that answers an unstreamed call with %s has failed, in its own words',
  async (type, body, words) => {
    const backend = await startDialects((response) => {
      response.writeHead(200, { 'content-type': type }).end(body)
    })
    const request = { model: 'model-a', input: 'hi' }
    const answer = backend.streamDialect('responses', request, NEVER)
    await expect(answer[Symbol.asyncIterator]().next()).rejects.toThrow(words)
  },
)

it('an answer of Responses that has failed is passed on as it is', async () => {
  const body = '{"id":"resp_1","status":"failed","error":{"message":"no"},"output":[]}'
  const backend = await startDialects((response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(body)
  })
  const answer = backend.streamDialect('responses', { model: 'model-a' }, NEVER)
  const { value } = await answer[Symbol.asyncIterator]().next()
  expect(JSON.parse(value?.[0]?.text ?? '')).toEqual({ body, is_last: true })
})

it('an event without data of a backend is not passed on in any dialect', async () => {
  const events = 'data: {"a":1}\n\ndata:\n\nevent: ping\ndata: \n\ndata: [DONE]\n\n'
  const backend = await startDialects((response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).end(events)
  })
  for (const dialect of ['responses', 'messages', 'completions'] as const) {
    const data: unknown[] = []
    const request = { model: 'model-a', stream: true }
    for await (const batch of backend.streamDialect(dialect, request, NEVER))
      data.push(...batch.map(({ text }) => JSON.parse(text).data))
    // [DONE] ends completions alone.
    expect(data).toEqual(dialect === 'completions' ? ['{"a":1}', '[DONE]'] : ['{"a":1}'])
  }
})

// https://github.com/zendev-sh/goai/issues/70
it.each([
  ['that fits a frame stays whole', 500_000, 1],
  ['that repeats a long answer comes in pieces', 1_500_000, 12],
])('an event %s', async (_, length, count) => {
  const data = `{"response":"é\\n${'x'.repeat(length)}"}`
  const backend = await startDialects((response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(`event: response.completed\ndata: ${data}\n\n`)
  })
  const chunks: { [name: string]: unknown }[] = []
  const request = { model: 'model-a', stream: true }
  for await (const batch of backend.streamDialect('responses', request, NEVER))
    chunks.push(...batch.map(({ text }) => JSON.parse(text)))
  expect(chunks).toHaveLength(count)
  expect(chunks.every(({ event }) => event === 'response.completed')).toBe(true)
  expect(chunks.map(({ data, piece }) => data ?? piece).join('')).toBe(data)
  const ends = chunks.map(({ is_last }) => is_last ?? true)
  expect(ends).toEqual(ends.map((_, index) => index === count - 1))
})

it('an event of a dialect that is larger than a whole answer may be is refused', async () => {
  const backend = await startDialects((response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.end(`data: "${'x'.repeat(16 * 1024 * 1024)}"\n\n`)
  })
  const answer = backend.streamDialect('responses', { model: 'model-a', stream: true }, NEVER)
  await expect(answer[Symbol.asyncIterator]().next()).rejects.toThrow('too large an event')
})

it('a backend is asked not to compress, and its key is in no message', async () => {
  let asked = ''
  const { backend } = await start((response) => {
    asked = String(response.req.headers['accept-encoding'])
    response.writeHead(401, { 'content-type': 'application/json' })
    response.end('{"error":"no such key: backend-key"}')
  })
  await expect(read(backend)).rejects.toThrow('no such key: [credential]')
  expect(asked).toBe('identity')
})

it.each([302, 307, 308])('a redirect (%d) of a backend is not followed', async (status) => {
  const elsewhere = await startScriptedBackend(answerWith('elsewhere'))
  started.push(elsewhere)
  const { backend } = await start((response) => {
    response.writeHead(status, { location: `${elsewhere.url}/v1/chat/completions` }).end()
  })
  await expect(read(backend)).rejects.toMatchObject({ statusCode: 500 })
  expect(elsewhere.requests).toEqual([])
})

it("a backend's call ends when it is aborted before the answer, or in mid-answer", async () => {
  const { server, backend } = await start((response, body) => {
    if (body.user === 'late') writeEvents(response, [textChunk('a')])
  })
  for (const user of ['early', 'late']) {
    const controller = new AbortController()
    const reading = read(backend, controller.signal, { ...REQUEST, user })
    await expect.poll(() => server.open()).toBe(1)
    controller.abort('cancelled')
    await expect(reading).rejects.toBe('cancelled')
    await expect.poll(() => server.open()).toBe(0)
  }
  expect(server.left()).toBe(2)
})

it("a backend's call ends when its reader leaves", async () => {
  const { server, backend } = await start((response) => writeEvents(response, [textChunk('a')]))
  for await (const _ of backend.streamChat(REQUEST, NEVER)) break
  await expect.poll(() => server.left()).toBe(1)
})

it('a backend that stalls before its head, or between two parts, is given up', async () => {
  const { server, backend } = await start(
    (response, body) => {
      if (body.user === 'late') writeEvents(response, [textChunk('a')])
    },
    { headTimeoutMs: 100, idleTimeoutMs: 100 },
  )
  await expect(read(backend)).rejects.toThrow('UND_ERR_HEADERS_TIMEOUT')
  await expect(read(backend, NEVER, { ...REQUEST, user: 'late' })).rejects.toThrow(
    'UND_ERR_BODY_TIMEOUT',
  )
  await expect.poll(() => server.open()).toBe(0)
})

it('a backend that breaks off, is gone, or answers without a stream is told as such', async () => {
  const { server, backend } = await start((response, body) => {
    if (body.user === 'break') {
      writeEvents(response, [textChunk('a')])
      setTimeout(() => response.destroy(), 10)
    } else response.writeHead(200).end('{"object":"chat.completion"}')
  })
  await expect(read(backend, NEVER, { ...REQUEST, user: 'break' })).rejects.toThrow('broke off')
  await expect(read(backend)).rejects.toThrow('something else than was asked for')
  await server.stop()
  await expect(read(backend)).rejects.toThrow('cannot be reached')
})

it("an event over the limit is refused, and ends the backend's call", async () => {
  const { server, backend } = await start((response) => {
    response.writeHead(200)
    const more = () => {
      while (response.write(`data: ${'x'.repeat(60_000)}`));
    }
    response.on('drain', more)
    more()
  })
  await expect(read(backend)).rejects.toThrow(
    /too large an event: expected events of at most \d+ bytes/,
  )
  await expect.poll(() => server.left()).toBe(1)
})

it('a backend lists its models, and its URL may end in /v1 or not', async () => {
  const { server } = await start(answerWith('a'))
  for (const url of [server.url, `${server.url}/`, `${server.url}/v1`, `${server.url}/v1/`]) {
    const backend = createBackend({ url, apiKey: null })
    expect(await backend.listModels()).toEqual(['model-a'])
    expect(backend.url).toBe(server.url)
    await backend.close()
  }
})

it.each([
  ['vLLM, which refuses the body', 422, ['responses', 'messages', 'completions']],
  ['Ollama, which refuses the body', 400, ['responses', 'messages', 'completions']],
  ['llama.cpp, which fails on the body', 500, ['responses', 'messages', 'completions']],
  ['LM Studio, which answers 200 everywhere', 200, []],
  ['a server without the paths', 404, []],
  ['a server without the methods', 405, []],
  ['a server that has not implemented them', 501, []],
])(
  'a backend like %s shows its dialects, and is asked for no inference',
  async (_, status, all) => {
    const bodies: string[] = []
    const server = await startScriptedBackend(answerWith('a'), [], 0, async (request, response) => {
      for await (const part of request.setEncoding('utf8')) bodies.push(part)
      response.writeHead(status).end()
    })
    const backend = createBackend({ url: server.url, apiKey: null })
    expect(await backend.listDialects()).toEqual(all)
    expect(bodies).toEqual(['{', '{', '{'])
    await backend.close()
    await server.stop()
    expect(await createBackend({ url: server.url, apiKey: null }).listDialects()).toEqual([])
  },
)

it("a backend's certificate is refused when no authority vouches for it", async () => {
  const { certificate, key } = await (await createAuthority()).issue({ hosts: ['127.0.0.1'] })
  const server = createSecureServer({ cert: certificate, key }, (_, reply) =>
    reply.end('{"data":[]}'),
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const backend = createBackend({ url: `https://127.0.0.1:${port}`, apiKey: null })
  await expect(backend.listModels()).rejects.toThrow('UNABLE_TO_VERIFY_LEAF_SIGNATURE')
  await backend.close()
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

it('findBackend gives the first kind in order that is up and lists models', async () => {
  const empty = await startScriptedBackend(answerWith('a'), [])
  const loading = await startScriptedBackend(answerWith('a'), null)
  const first = await startScriptedBackend(answerWith('a'), ['m1', 'm2'])
  const second = await startScriptedBackend(answerWith('a'), ['m3'])
  started.push(empty, loading, first, second)
  const kinds = [empty, loading, first, second].map(({ url }, index) => ({
    name: `kind ${index}`,
    port: Number(new URL(url).port),
    healthPath: '/health',
  }))
  const found = await findBackend({ apiKey: null, kinds })
  expect(found?.kind.name).toBe('kind 2')
  expect(found?.models).toEqual(['m1', 'm2'])
  await found?.backend.close()
})

it('findBackend gives a server that still loads its model when no server lists models', async () => {
  const empty = await startScriptedBackend(answerWith('a'), [])
  const loading = await startScriptedBackend(answerWith('a'), null)
  started.push(empty, loading)
  const kinds = [empty, loading].map(({ url }, index) => ({
    name: `kind ${index}`,
    port: Number(new URL(url).port),
    healthPath: '/health',
    reportsLoading: true,
  }))
  const others = kinds.map((kind) => ({ ...kind, reportsLoading: false }))
  expect(await findBackend({ apiKey: null, kinds: others })).toBeNull()
  const found = await findBackend({ apiKey: null, kinds })
  expect(found).toMatchObject({ kind: { name: 'kind 1' }, models: [] })
  await expect(found?.backend.listModels()).rejects.toThrow(/503/)
  await found?.backend.close()
})

// https://github.com/lemonade-sdk/lemonade/issues/2826
it('an error without the form of an event is the fault, with its words and its status', async () => {
  const body = '{"error":{"message":"too long","type":"BadRequestError","code":400}}'
  const { backend } = await start((response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(body.slice(0, 20))
    response.end(body.slice(20))
  })
  await expect(read(backend)).rejects.toMatchObject({ message: 'too long', statusCode: 400 })
})
