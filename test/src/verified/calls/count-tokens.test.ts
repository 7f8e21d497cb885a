import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo, Server } from 'node:net'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import { CALL_KINDS, type Tiers } from '#src/accounts/limits/tiers.ts'
import { createDemoServer } from '#src/local/demo/server.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, useGateway } from '../../../support/gateway.ts'
import { until } from '../../../support/until.ts'

const KEY = 'operators-key-0123456789'
const PATHS = ['/v1/messages/count_tokens', '/messages/count_tokens']
const GROUP = {
  name: 'all',
  calls: CALL_KINDS,
  models: ['*'],
  limits: { requestsPerMinute: 100, tokensPerMinute: 1, requestsPerDay: null, tokensPerDay: null },
  pricePerMillionTokens: null,
}
const TIERS: Tiers = {
  standard: { name: 'standard', description: '', groups: [GROUP] },
  byName: new Map(),
}

type Asked = Pick<IncomingMessage, 'method' | 'url' | 'headers'> & { readonly body: string }

/** What the scripted provider was asked, and what it answers. */
const asked: Asked[] = []
let answer: readonly [status: number, body: unknown] = [200, {}]

const scripted = createServer(async (request, response) => {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part)
  const { method, url, headers } = request
  asked.push({ method, url, headers, body: Buffer.concat(parts).toString() })
  const [status, body] = answer
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
})
const demo = createDemoServer({ delayMs: 0, now: Date.now })

async function listen(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const post = (path: string, body: object, headers: Readonly<Record<string, string>> = {}) =>
  fetch(`${gateway.url}/v1/verified/anthropic${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': gateway.key, ...headers },
    body: JSON.stringify(body),
  })
const messages = [{ role: 'user' as const, content: 'Hello there' }]

const gateway = await useGateway({ credentials: new Map([['anthropic', KEY]]) })
beforeAll(async () => {
  const entry = (name: string, origin: string, models: readonly string[]): ProviderEntry => ({
    name,
    origin,
    path: '/v1/chat/completions',
    endpoints: { messages: { path: '/v1/messages', credential: 'x-api-key' } },
    models,
  })
  const { endpoints: _, ...chatAlone } = entry('other', await listen(demo), ['gpt-*'])
  gateway.enclave.setProviders([
    entry('anthropic', await listen(scripted), ['claude-*']),
    entry('demo', chatAlone.origin, ['demo/*']),
    chatAlone,
  ])
  const isServed = async () =>
    (await post(PATHS[0] ?? '', { model: 'demo/echo', messages })).status === 200
  await until('the gateway knows the providers', isServed)
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  for (const server of [scripted, demo]) {
    server.close()
    server.closeAllConnections()
  }
}, GATEWAY_HOOK_TIMEOUT_MS)
beforeEach(() => {
  asked.length = 0
  answer = [200, { input_tokens: 42 }]
})

it.each(PATHS)("the provider gets the caller's bytes and headers at %s", async (path) => {
  const request = { model: 'claude-x', messages, system: 'é', thread: null }
  const reply = await post(`${path}?beta=true`, request, {
    'anthropic-version': '2023-06-01',
    'anthropic-beta': 'one, two',
    'x-other': 'dropped',
  })
  expect([reply.status, await reply.json()]).toEqual([200, { input_tokens: 42 }])
  expect(asked).toMatchObject([
    {
      method: 'POST',
      url: '/v1/messages/count_tokens',
      body: JSON.stringify(request),
      headers: {
        'x-api-key': KEY,
        'anthropic-version': '2023-06-01',
        'anthropic-beta': 'one, two',
        'content-type': 'application/json',
      },
    },
  ])
  expect(asked[0]?.headers).not.toHaveProperty('x-other')
  expect(asked[0]?.headers).not.toHaveProperty('authorization')
  expect(gateway.enclave.calls).toEqual([])
})

it("the caller's own credential is sent in place of the operator's", async () => {
  await post(PATHS[0] ?? '', { model: 'claude-x', messages }, { 'fine-tune-authorization': 'mine' })
  expect(asked[0]?.headers['x-api-key']).toBe('mine')
  answer = [401, { error: { message: 'mine is not a key' } }]
  const refused = await post(
    PATHS[0] ?? '',
    { model: 'claude-x', messages },
    { 'fine-tune-authorization': 'mine' },
  )
  expect(refused.status).toBe(401)
  expect(await refused.json()).toMatchObject({ error: { type: 'authentication_error' } })
})

it.each<[string, number, unknown, number, string, string]>([
  ['does not count', 404, {}, 404, 'not_found_error', 'not_found'],
  ['refuses', 400, {}, 400, 'invalid_request_error', 'provider_refused'],
  ['rejects the credential', 401, {}, 500, 'api_error', 'provider_credential_rejected'],
  ['fails', 500, {}, 500, 'api_error', 'provider_error'],
  ['answers without a count', 200, { tokens: 1 }, 500, 'api_error', 'provider_error'],
  ['answers a count of no tokens', 200, { input_tokens: -1 }, 500, 'api_error', 'provider_error'],
])('a provider that %s with %i %j gives %i %s %s', async (_, given, body, status, type, code) => {
  answer = [given, body]
  const reply = await post(PATHS[0] ?? '', { model: 'claude-x', messages })
  expect(reply.status).toBe(status)
  expect(await reply.json()).toMatchObject({ type: 'error', error: { type, code } })
})

it.each(['gpt-4o', 'nobody/has-it'])('the model %s is refused by name with 400', async (model) => {
  const reply = await post(PATHS[0] ?? '', { model, messages })
  expect(reply.status).toBe(400)
  expect(await reply.json()).toMatchObject({ error: { code: 'unsupported_model' } })
})

it('a count is one request without tokens', async () => {
  const limited = await startGateway({ tiers: TIERS })
  const reply = await fetch(`${limited.url}/v1/verified/anthropic${PATHS[0]}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-api-key': limited.key },
    body: JSON.stringify({ model: 'nobody/has-it', messages }),
  })
  await limited.stop()
  expect(reply.headers.get('anthropic-ratelimit-requests-remaining')).toBe('99')
  expect(reply.headers.get('anthropic-ratelimit-input-tokens-remaining')).toBe('1')
})
