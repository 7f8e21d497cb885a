import type { ServerResponse } from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  ATTEMPTS_MAX,
  BACK_OFF_MAX_MS,
  GatewayFault,
  type GatewayHttp,
  openGatewayHttp,
  SLOW_ATTEMPTS_MAX,
} from '#audit/gateway-http.ts'
import { UnsafeKey } from '#client/gateway.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../support/scripted-endpoint.ts'

let server: ScriptedEndpoint
let url: string
let http: GatewayHttp
/** What the server does with each question, in turn; the last one again and again. */
let script: readonly ((response: ServerResponse) => void)[]
let asked: { path: string | undefined; authorization: string | undefined }[] = []
let pauses: number[] = []

beforeAll(async () => {
  server = await startScriptedEndpoint((request, response) => {
    asked.push({ path: request.url, authorization: request.headers.authorization })
    const step = script[asked.length - 1] ?? script.at(-1)
    step?.(response)
  })
  url = `${server.origin}/base/`
})
afterAll(() => server.stop())

function open(
  steps: typeof script,
  options: Partial<Parameters<typeof openGatewayHttp>[0]> = {},
): GatewayHttp {
  script = steps
  asked = []
  pauses = []
  http = openGatewayHttp({
    url,
    apiKey: null,
    signal: new AbortController().signal,
    sleep: async (durationMs) => void pauses.push(durationMs),
    ...options,
  })
  return http
}

const ok = (response: ServerResponse) => response.end('{"a":1}')
const status =
  (code: number, headers: Record<string, string> = {}) =>
  (response: ServerResponse) =>
    response.writeHead(code, headers).end('{"error":{"message":"in words"}}')
const breakOff = (response: ServerResponse) => response.destroy()
const ask = () => http.fetchObject('/v1/log?limit=1', { bytesMax: 1000 })
const faultOf = async () => {
  const fault = await ask().catch((error: unknown) => error)
  return fault instanceof GatewayFault ? fault : null
}

describe('openGatewayHttp', () => {
  it('the HTTP client of an audit asks below the base URL, with the key', async () => {
    open([ok], { apiKey: 'sk-1' })
    expect(await ask()).toEqual({ a: 1 })
    expect(asked).toEqual([{ path: '/base/v1/log?limit=1', authorization: 'Bearer sk-1' }])
  })

  it.each([429, 503])(
    'the HTTP client of an audit asks again, later each time, after %i',
    async (code) => {
      open([status(code), status(code), status(code), ok])
      expect(await ask()).toEqual({ a: 1 })
      expect(pauses).toEqual([250, 500, 1000])
    },
  )

  it('the HTTP client of an audit asks again after a connection that broke, before the answer and in it', async () => {
    const half = (response: ServerResponse) => {
      response.writeHead(200, { 'content-length': '7' })
      response.write('{"a"', () => response.destroy())
    }
    open([breakOff, half, ok])
    expect(await ask()).toEqual({ a: 1 })
    expect(pauses).toHaveLength(2)
  })

  it('the HTTP client of an audit waits as long as it is told to, but no longer than its own longest wait', async () => {
    open([
      status(429, { 'retry-after': '7' }),
      status(503, { 'retry-after': '999999' }),
      status(503, { 'retry-after': 'soon' }),
      ok,
    ])
    await ask()
    expect(pauses).toEqual([7000, BACK_OFF_MAX_MS, 1000])
  })

  it('the HTTP client of an audit gives up in the end, with what the gateway said', async () => {
    open([status(503)])
    expect(await faultOf()).toMatchObject({
      code: 'gateway_unreachable',
      message: 'the gateway answered 503: in words',
    })
    expect(asked).toHaveLength(ATTEMPTS_MAX)
    open([breakOff])
    expect(await faultOf()).toMatchObject({ code: 'gateway_unreachable', where: '/v1/log?limit=1' })
  })

  it('the HTTP client of an audit gives up sooner on an answer that takes too long', async () => {
    open([(response) => response.write('{')], { timeoutMs: 1_000 })
    expect(await faultOf()).toMatchObject({ code: 'answer_too_slow' })
    expect(asked).toHaveLength(SLOW_ATTEMPTS_MAX)
  })

  it.each<[string, (response: ServerResponse) => void, string]>([
    ['a redirect', status(301, { location: '/' }), 'redirected'],
    ['a refusal', status(404), 'answer_refused'],
    [
      'an answer that is too large',
      (response) => response.end('x'.repeat(1001)),
      'answer_too_large',
    ],
    ['no JSON', (response) => response.end('<html>'), 'answer_invalid'],
  ])('the HTTP client of an audit does not ask again for %s', async (_, step, code) => {
    open([step])
    expect(await faultOf()).toMatchObject({ code })
    expect(asked).toHaveLength(1)
  })

  it('the HTTP client of an audit stops at once when it is told to, with the reason', async () => {
    const controller = new AbortController()
    open([(response) => response.write('{')], { signal: controller.signal })
    const asking = ask()
    controller.abort(new Error('enough'))
    await expect(asking).rejects.toThrow('enough')
  })

  it('the HTTP client of an audit does not send a key over plain http beyond this machine', () => {
    expect(() =>
      openGatewayHttp({
        url: 'http://gateway.example',
        apiKey: 'sk-1',
        signal: new AbortController().signal,
        sleep: async () => undefined,
      }),
    ).toThrow(UnsafeKey)
  })
})
