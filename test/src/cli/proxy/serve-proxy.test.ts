import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import { type Affidavit, AffidavitError } from '#client/index.ts'
import { LostCall } from '#src/cli/proxy/caller-errors.ts'
import { type CheckingProxy, type ProxiedCall, serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import { FAR_OFF_MS } from '../../../support/at-once.ts'

const proxies: CheckingProxy[] = []
const calls: ProxiedCall[] = []
afterEach(async () => {
  calls.length = 0
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()))
})

type ProxyOptions = Parameters<typeof serveProxy>[0]
type Send = (url: string, init: { readonly signal: AbortSignal }) => Promise<Response>

/** A proxy of a client whose fetch is `send`. */
async function openProxy(send: Send, more: Partial<ProxyOptions> = {}): Promise<CheckingProxy> {
  const affidavit = {
    baseURL: 'http://127.0.0.1:9/v1/verified',
    fetch: send,
    proofs: { of: () => ({ request: {}, answer: {} }) },
  } as unknown as Affidavit
  const onCall = (call: ProxiedCall) => void calls.push(call)
  const proxy = await serveProxy({ affidavit, port: 0, onCall, ...more })
  proxies.push(proxy)
  return proxy
}

const ask = ({ baseURL }: CheckingProxy, path: string, init: RequestInit = {}) =>
  fetch(baseURL + path, { method: 'POST', body: '{"model":"m"}', ...init })
const verdicts = () => calls.map(({ verdict, detail }) => [verdict, detail])

describe('the key for evidence', () => {
  it.each([
    ['Authorization alone', { authorization: 'Bearer afd_k' }, 'afd_k'],
    ['x-api-key alone', { 'x-api-key': 'afd_k' }, 'afd_k'],
    ['an empty x-api-key', { authorization: 'Bearer afd_k', 'x-api-key': '' }, 'afd_k'],
    ['another x-api-key', { authorization: 'Bearer afd_k', 'x-api-key': 'other' }, 'afd_k'],
    ['an empty Authorization', { authorization: '', 'x-api-key': 'afd_k' }, 'afd_k'],
    ['only empty headers', { authorization: '', 'x-api-key': '' }, null],
  ] as const)(
    'the evidence of a call with %s is asked for with the key of the call',
    async (_, headers, key) => {
      const keys: (string | null)[] = []
      const onProof: ProxyOptions['onProof'] = (__, apiKey) => void keys.push(apiKey)
      const proxy = await openProxy(async () => Response.json({}), { onProof })
      await (await ask(proxy, '/chat/completions', { headers })).text()
      expect(keys).toEqual([key])
    },
  )
})

// https://github.com/QuantumNous/new-api/issues/4913
describe('a compressed request', () => {
  const text = '{"model":"m","input":"é"}'
  /** 65 MiB: 1 MiB more than the proxy takes. */
  const bomb = Buffer.alloc(65 * 1024 * 1024)
  const codings: [string, (bytes: Buffer) => Buffer<ArrayBuffer>][] = [
    ['gzip', (bytes) => gzipSync(bytes)],
    ['X-GZIP', (bytes) => gzipSync(bytes)],
    ['deflate', (bytes) => deflateSync(bytes)],
    ['br', (bytes) => brotliCompressSync(bytes)],
    ['zstd', (bytes) => zstdCompressSync(bytes)],
  ]
  const askIn = async (coding: string, body: Buffer<ArrayBuffer> | string) => {
    const sent: [string, Headers][] = []
    const send = async (_: string, init: RequestInit) => {
      sent.push([String(init.body), new Headers(init.headers)])
      return Response.json({})
    }
    const headers = { 'content-encoding': coding }
    const reply = await ask(await openProxy(send), '/messages', { headers, body })
    const { error } = (await reply.json()) as { readonly error?: { readonly message: string } }
    return { sent, status: reply.status, headers: reply.headers, message: error?.message ?? '' }
  }

  it.each(codings)('a body in %s reaches the gateway as plain bytes', async (coding, compress) => {
    const { status, sent } = await askIn(coding, compress(Buffer.from(text)))
    expect(status).toBe(200)
    expect(sent.map(([body]) => body)).toEqual([text])
    expect(sent[0]?.[1].has('content-encoding')).toBe(false)
  })

  it('a bomb in zstd is too large', async () => {
    const { status, sent } = await askIn('zstd', zstdCompressSync(bomb))
    expect([status, sent]).toEqual([413, []])
    expect(verdicts()).toEqual([['error', 'payload_too_large']])
  })

  it.each(codings)('a body that is not in %s, or is cut, is broken', async (coding, compress) => {
    const cut = compress(Buffer.from(text)).subarray(0, -3)
    for (const body of [text, cut]) {
      const { status, sent, message } = await askIn(coding, body)
      expect([status, sent]).toEqual([400, []])
      expect(message).toMatch(/^expected a body in /)
    }
  })

  it.each(['compress', 'gzip, br'])('a coding that is not read is named: %s', async (coding) => {
    const { status, sent, headers, message } = await askIn(coding, text)
    expect([status, sent]).toEqual([415, []])
    expect(message).toBe(`expected content-encoding gzip, deflate, br, zstd or none, got ${coding}`)
    expect(headers.get('accept-encoding')).toBe('gzip, deflate, br, zstd')
  })

  it('identity is no coding', async () => {
    const { status, sent } = await askIn('identity', text)
    expect([status, sent[0]?.[0]]).toEqual([200, text])
  })
})

/** A request on a connection of its own, which sends these bytes of its body and goes on later. */
async function beginRequest({ baseURL }: CheckingProxy, body: string | Buffer, length: number) {
  const { port, pathname } = new URL(`${baseURL}/chat/completions`)
  const socket = connect(Number(port), '127.0.0.1').on('error', () => undefined)
  const answer = new Promise<string>((resolve) => {
    let text = ''
    socket.setEncoding('latin1').on('data', (part: string) => (text += part))
    socket.once('close', () => resolve(text))
  })
  socket.write(`POST ${pathname} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${length}\r\n\r\n`)
  socket.write(body)
  return { socket, answer }
}

describe('the bodies of requests', () => {
  const MIB = 1024 * 1024

  it('requests without a key that do not end use up one budget, and no more memory', async () => {
    const bodyLimits = { bytesMax: 4 * MIB, silenceMs: FAR_OFF_MS }
    const proxy = await openProxy(async () => Response.json({}), { bodyLimits })
    const part = Buffer.alloc(1.2 * MIB, ' ')
    const begun = [1, 2, 3].map(() => beginRequest(proxy, part, 2 * MIB))
    const body = Buffer.alloc(0.6 * MIB, ' ')
    await expect.poll(async () => (await ask(proxy, '/messages', { body })).status).toBe(503)
    const refused = await ask(proxy, '/messages', { body })
    expect(refused.headers.get('retry-after')).toBe('1')
    expect(await refused.json()).toMatchObject({ error: { code: 'proxy_busy' } })
    // A small request fits, and does not count after its end.
    for (let call = 0; call < 5; call++)
      expect((await ask(proxy, '/messages', { body: '{}' })).status).toBe(200)
    for (const { socket } of await Promise.all(begun)) socket.destroy()
    await expect.poll(async () => (await ask(proxy, '/messages', { body })).status).toBe(200)
  })

  it('the body of a running call counts until its end, and each coded body as its largest size', async () => {
    const begun = Promise.withResolvers<void>()
    const released = Promise.withResolvers<void>()
    const send: Send = async () => {
      begun.resolve()
      await released.promise
      return Response.json({})
    }
    const bodyLimits = { bytesMax: 65 * MIB, silenceMs: FAR_OFF_MS }
    const proxy = await openProxy(send, { bodyLimits })
    const first = ask(proxy, '/messages', { body: Buffer.alloc(1.2 * MIB, ' ') })
    await begun.promise
    const headers = { 'content-encoding': 'gzip' }
    const askSmall = () => ask(proxy, '/messages', { headers, body: gzipSync('{}') })
    expect((await askSmall()).status).toBe(503)
    released.resolve()
    expect((await first).status).toBe(200)
    expect((await askSmall()).status).toBe(200)
  })

  it('a body without a byte for some time is refused, and a slow body is not', async () => {
    const bodyLimits = { bytesMax: MIB, silenceMs: 400 }
    const proxy = await openProxy(async () => Response.json({ id: 'slow' }), { bodyLimits })
    const silent = await beginRequest(proxy, '{', 2)
    const slow = await beginRequest(proxy, '{', 8)
    for (const part of ['"a"', ':', '1', '} ']) {
      await sleep(200)
      slow.socket.write(part)
    }
    const refused = await silent.answer
    expect(refused).toMatch(/^HTTP\/1\.1 408 /)
    expect(refused).toContain('"code":"request_timeout"')
    expect(verdicts()).toContainEqual(['error', 'request_timeout'])
    slow.socket.end()
    expect(await slow.answer).toMatch(/^HTTP\/1\.1 200 /)
  })
})

it('the log line of a request beyond the limits of the client names no model', async () => {
  const proxy = await openProxy(async () => Response.json({}))
  const body = `{"model":"m","input":[${'['.repeat(200)}${']'.repeat(200)}]}`
  await (await ask(proxy, '/responses', { body })).text()
  await (await ask(proxy, '/responses')).text()
  expect(calls.map(({ model }) => model)).toEqual([null, 'm'])
})

describe('a secret segment of the base URL', () => {
  const token = 'c2VjcmV0'

  it('a request without the secret segment is not found, and is not sent', async () => {
    const sent: string[] = []
    const send: Send = async (url, init) => {
      sent.push(url + JSON.stringify([...new Headers((init as RequestInit).headers)]))
      return Response.json({})
    }
    const proxy = await openProxy(send, { token })
    const { origin } = new URL(proxy.baseURL)
    expect(proxy.baseURL).toBe(`${origin}/${token}/v1`)
    const statusOf = async (path: string) =>
      (await fetch(origin + path, { method: 'POST', body: '{}' })).status
    for (const path of ['/v1/messages', `/${token}x/v1/messages`, '//v1/messages', `/v1/${token}`])
      expect([path, await statusOf(path)]).toEqual([path, 404])
    expect((await fetch(`${origin}/api/hello`)).status).toBe(404)
    expect((await fetch(`${origin}/v1/models`)).status).toBe(404)
    expect(sent).toEqual([])
    expect(await statusOf(`/${token}/v1/messages`)).toBe(200)
    expect(await statusOf(`/${token}/messages?beta=true`)).toBe(200)
    expect((await fetch(`${proxy.baseURL}/models`)).status).toBe(200)
    expect((await fetch(`${origin}/${token}/api/hello`)).status).toBe(200)
    expect(sent).toHaveLength(3)
    expect(sent.join() + JSON.stringify(calls)).not.toContain(token)
  })
})

/** A server that does this with each connection, and the proxy's way to it. */
async function openBreaking(onConnection: (socket: Socket) => void) {
  const server = createServer(onConnection)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const send: Send = (_, init) => fetch(`http://127.0.0.1:${port}/`, init)
  return { proxy: await openProxy(send), stop: () => void server.close() }
}

describe('a gateway that is not reached', () => {
  const cutAfter = (count: number) => (socket: Socket) => {
    let bytes = 0
    socket.on('error', () => undefined)
    socket.on('data', (part) => {
      bytes += part.length
      if (bytes > count) socket.resetAndDestroy()
    })
  }
  const cutAnswer = (socket: Socket) =>
    socket
      .on('error', () => undefined)
      .end('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{')

  it.each([
    ['that cuts the connection after the first bytes', cutAfter(0), '/chat/completions'],
    ['that cuts the connection after the body', cutAfter(100_000), '/responses'],
    ['that closes a connection at once', (socket: Socket) => void socket.destroy(), '/messages'],
    ['that cuts its answer', cutAnswer, '/messages'],
  ])('a gateway %s is not to be asked again', async (_, onConnection, path) => {
    const { proxy, stop } = await openBreaking(onConnection)
    const answer = await ask(proxy, path, { body: '{'.padEnd(100_001) })
    expect(answer.status).toBe(502)
    expect(answer.headers.get('x-should-retry')).toBe('false')
    expect(await answer.json()).toMatchObject({ error: { code: 'unreachable' } })
    expect(verdicts()).toEqual([['error', 'unreachable']])
    stop()
  })

  it.each([
    ['that refuses the connection', '127.0.0.1'],
    ['whose addresses all refuse it', 'localhost'],
    ['whose name has no address', 'gateway.invalid'],
  ])('a gateway %s may be asked again', async (_, host) => {
    const ended = await openProxy(() => Promise.reject(new Error('expected no call')))
    await ended.close()
    const { port } = new URL(ended.baseURL)
    const proxy = await openProxy((__, init) => fetch(`http://${host}:${port}/`, init))
    const answer = await ask(proxy, '/chat/completions')
    expect([answer.status, answer.headers.get('x-should-retry')]).toEqual([502, null])
    expect(await answer.json()).toMatchObject({ error: { code: 'unreachable' } })
  })

  it('a broken list of models may be asked for again', async () => {
    const { proxy, stop } = await openBreaking((socket) => void socket.destroy())
    const answer = await fetch(`${proxy.baseURL}/models`)
    expect([answer.status, answer.headers.get('x-should-retry')]).toEqual([502, null])
    stop()
  })

  it('an enclave that cannot be attested after its answer leaves a call that may have been made', async () => {
    const unattested = new AffidavitError('unreachable', 'no answer')
    const refused = new Response()
    Object.defineProperty(refused, 'arrayBuffer', { value: () => Promise.reject(unattested) })
    const answer = await ask(await openProxy(async () => refused), '/chat/completions')
    expect([answer.status, answer.headers.get('x-should-retry')]).toEqual([502, 'false'])
    const earlier = await ask(
      await openProxy(() => Promise.reject(unattested)),
      '/chat/completions',
    )
    expect([earlier.status, earlier.headers.get('x-should-retry')]).toEqual([502, null])
  })
})

/** Gives one event of a stream that then fails. */
function failingStream(data: string): Send {
  const event = new TextEncoder().encode(`event: response.created\ndata: ${data}\n\n`)
  return async () => {
    const parts = [() => event, () => Promise.reject(new Error('the stream broke'))]
    const body = new ReadableStream({
      pull: async (controller) => controller.enqueue(await parts.shift()?.()),
    })
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  }
}

describe('an answer that fails', () => {
  const streamed = { body: '{"model":"m","stream":true}' }

  it('a stream that fails ends with its response, whatever characters its first event has', async () => {
    const response = { id: 'r', instructions: 'one\u2028two\u2029three' }
    const data = JSON.stringify({ type: 'response.created', response })
    const answer = await ask(await openProxy(failingStream(data)), '/responses', streamed)
    const [, last = ''] = (await answer.text()).split('event: response.failed\ndata: ')
    expect(JSON.parse(last)).toMatchObject({
      sequence_number: 1,
      response: { ...response, status: 'failed', error: { code: 'unreachable' } },
    })
  })

  it('a call that cannot be answered with an error ends alone', async () => {
    const proxy = await openProxy(failingStream('{'))
    for (let call = 0; call < 2; call++)
      await expect(
        ask(proxy, '/responses', streamed).then((answer) => answer.text()),
      ).rejects.toThrow()
    expect(verdicts()).toEqual([
      ['error', 'unreachable'],
      ['error', 'unreachable'],
    ])
  })

  it.each([
    ['/chat/completions', 502],
    ['/responses', 400],
    ['/messages', 400],
  ])('an answer at %s whose proof could not be kept is refused for good', async (path, status) => {
    const lost = new LostCall('not_kept', 'no space left')
    const answer = await ask(await openProxy(() => Promise.reject(lost)), path)
    expect(answer.status).toBe(status)
    expect(answer.headers.get('x-should-retry')).toBe('false')
    expect(await answer.json()).toMatchObject({
      error: { code: 'not_kept', message: 'no space left' },
    })
    expect(verdicts()).toEqual([['refused', 'not_kept']])
  })
})

it('a client that resets its upgrade, or keeps it half open, neither ends the proxy nor keeps it open', async () => {
  const proxy = await openProxy(() => Promise.reject(new Error('expected no call')))
  const port = Number(new URL(proxy.baseURL).port)
  const upgrade =
    `GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n` +
    'Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n'
  for (let round = 0; round < 20; round++)
    await new Promise<void>((resolve) => {
      const socket = connect(port, '127.0.0.1', () => {
        socket.write(upgrade, () => {
          socket.resetAndDestroy()
          setImmediate(resolve)
        })
      })
    })
  const answer = await new Promise<string>((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    socket.once('data', (bytes) => resolve(bytes.toString()))
    socket.write(upgrade)
  })
  expect(answer).toMatch(/^HTTP\/1\.1 426 /)
})

/** A proxy with a call that its gateway answers at `release`, or when the proxy leaves it. */
async function openStoppingProxy(drainMs: number) {
  const begun = Promise.withResolvers<void>()
  const released = Promise.withResolvers<Response>()
  const send: Send = (_, { signal }) => {
    signal.addEventListener('abort', () => released.reject(signal.reason))
    begun.resolve()
    return released.promise
  }
  const proxy = await openProxy(send, { drainMs })
  const asked = ask(proxy, '/chat/completions')
  await begun.promise
  return { proxy, asked, release: () => released.resolve(Response.json({ id: 'late' })) }
}

describe('a proxy that stops', () => {
  it('a proxy that stops gives the answers of calls that were sent', async () => {
    const { proxy, asked, release } = await openStoppingProxy(FAR_OFF_MS)
    const closed = proxy.close()
    release()
    const answer = await asked
    expect([answer.status, await answer.json()]).toEqual([200, { id: 'late' }])
    await closed
  })

  it('a call that outlasts the stop of its proxy is not to be repeated', async () => {
    const { proxy, asked } = await openStoppingProxy(50)
    const closed = proxy.close()
    const answer = await asked
    expect(answer.headers.get('x-should-retry')).toBe('false')
    expect(await answer.json()).toMatchObject({
      error: { code: 'stopping', message: expect.stringContaining('The call was made') },
    })
    await closed
  })
})
