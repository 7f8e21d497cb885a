import { connect } from 'node:net'
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib'
import { afterEach, describe, expect, it } from 'vitest'
import type { Affidavit } from '#client/index.ts'
import {
  type CheckingProxy,
  LostCall,
  type ProxiedCall,
  serveProxy,
} from '#src/cli/proxy/serve-proxy.ts'
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
