import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { z } from 'zod'
import { quotaHeaders } from '#src/accounts/limits/quota.ts'
import { createAdmission } from '#src/api/admission.ts'
import { openApp } from '#src/api/app.ts'
import { ApiError, type ErrorCode, ValidationError } from '#src/api/errors.ts'
import { ANTHROPIC_FACE, type Face, RESPONSES_FACE } from '#src/api/faces.ts'
import { createDocument } from '#src/api/openapi/document.ts'
import { defineRoute } from '#src/api/route.ts'
import { createLogger } from '#src/observability/logger.ts'

const KEY = 'sk-valid'
const log = createLogger({ level: 'silent', destination: { write: () => undefined } })

/** What the next call of a route fails with, and after how many events. */
let failure: Error = new ApiError('not_ready', 'later')
let events: readonly string[] | null = null

const asked = z.looseObject({ model: z.string() })
const answer = z.looseObject({})

function routeAt(path: string, face: Face) {
  return defineRoute({
    method: 'POST',
    path,
    face,
    tag: 'Test',
    summary: 'Fails',
    scope: 'inference',
    admission: createAdmission({ callsMax: 10, bytesMax: 10_000 }),
    body: {
      name: 'Asked',
      schema: asked,
      bytesMax: 1_000,
      example: {},
    },
    reply: { name: 'Answer', schema: answer },
    errors: ['unsupported_model', 'insufficient_quota', 'not_ready'],
    handler: async ({ stream }) => {
      const given = events
      if (given === null) throw failure
      return stream(
        async (writer) => {
          writer.open()
          await writer.write(given.join(''))
          throw failure
        },
        undefined,
        () => (given.length === 0 ? null : { response: RESPONSE, sequence: given.length }),
      )
    },
  })
}

const RESPONSE = { id: 'resp_1', object: 'response', status: 'in_progress', output: [] }
const CREATED = `event: response.created\ndata: ${JSON.stringify({ type: 'response.created', sequence_number: 0, response: RESPONSE })}\n\n`

const ROUTES = [
  routeAt('/v1/responses', RESPONSES_FACE),
  routeAt('/v1/messages', ANTHROPIC_FACE),
  routeAt('/v1/verified/anthropic/v1/messages', ANTHROPIC_FACE),
]
const caller = {
  accountId: 'a',
  keyId: 'k',
  scopes: ['inference'],
  tier: null,
  expiresAt: null,
} as const
const app = openApp(
  {
    keepAliveMs: 60_000,
    corsOrigins: [],
    memoryBytesMax: 1e8,
    shutdownGraceMs: 100,
    logLevel: 'silent',
    trustedProxies: [],
    isStaging: false,
  },
  {
    routes: ROUTES,
    pages: { routes: [], showMissing: async () => undefined },
    keys: { authenticate: async (key) => (key === KEY ? caller : null) },
    sockets: {
      path: '/v1/nodes',
      handleUpgrade: (_, socket) => void socket.end('HTTP/1.1 418 node\r\n\r\n'),
      stop: async () => undefined,
    },
    observers: [],
    isDraining: () => false,
    log,
  },
)
let url: string
beforeAll(async () => {
  url = `http://127.0.0.1:${(await app.listen({ host: '127.0.0.1', port: 0 })).port}`
})
afterAll(() => app.close())

const post = (path: string, headers: Readonly<Record<string, string>> = { 'x-api-key': KEY }) =>
  fetch(url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: '{"model":"m"}',
  })

type Case = readonly [Error, responses: number, anthropic: number, type: string]
const CASES: readonly Case[] = [
  [new ApiError('malformed_request', 'm'), 400, 400, 'invalid_request_error'],
  [new ApiError('unsupported_model', 'm'), 400, 400, 'invalid_request_error'],
  [new ApiError('credential_mismatch', 'm'), 400, 400, 'invalid_request_error'],
  [
    new ValidationError([{ loc: ['body', 'input'], msg: 'bad', type: 'value_error' }]),
    400,
    400,
    'invalid_request_error',
  ],
  [new ApiError('provider_refused', 'm', { status: 422 }), 400, 400, 'invalid_request_error'],
  [new ApiError('not_found', 'm'), 404, 404, 'not_found_error'],
  [new ApiError('insufficient_scope', 'm'), 403, 403, 'permission_error'],
  [new ApiError('payload_too_large', 'm'), 413, 413, 'request_too_large'],
  [new ApiError('rate_limit_exceeded', 'm'), 429, 429, 'rate_limit_error'],
  [
    new ApiError('rate_limit_exceeded', 'm', { shouldRetry: false }),
    400,
    400,
    'invalid_request_error',
  ],
  [new ApiError('insufficient_quota', 'm'), 429, 402, 'billing_error'],
  [new ApiError('provider_error', 'm'), 502, 500, 'api_error'],
  [new ApiError('overloaded', 'm'), 503, 529, 'overloaded_error'],
  [new ApiError('commit_delayed', 'm'), 503, 500, 'api_error'],
  [new ApiError('provider_timeout', 'm'), 504, 504, 'timeout_error'],
  [new TypeError('secret'), 500, 500, 'api_error'],
]

it.each(CASES)(
  'the error %s has status %i for Responses, and %i %s for Messages',
  async (error, responses, anthropic, type) => {
    events = null
    failure = error
    const code = error instanceof ApiError ? error.code : expect.any(String)
    const first = await post('/v1/responses')
    expect(first.status).toBe(responses)
    expect(await first.json()).toEqual({
      error: {
        message: expect.any(String),
        type: expect.any(String),
        param:
          error instanceof ValidationError
            ? 'input'
            : expect.toBeOneOf([null, 'model', 'affidavit']),
        code,
      },
    })
    const second = await post('/v1/messages')
    expect(second.status).toBe(anthropic)
    const requestId = second.headers.get('request-id')
    expect(requestId).toBe(second.headers.get('x-request-id'))
    expect(await second.json()).toEqual({
      type: 'error',
      error: { type, message: expect.not.stringContaining('secret'), code },
      request_id: requestId,
    })
  },
)

it('a thread is refused so that the tool runner of the SDK goes on without it', async () => {
  events = null
  const unfit = (member: string) =>
    new ValidationError([{ loc: ['body', member], msg: 'bad', type: 'value_error' }])
  const bodyFor = async (error: Error) => {
    failure = error
    return (await post('/v1/messages')).json()
  }
  expect(await bodyFor(unfit('thread'))).toMatchObject({
    error: {
      type: 'invalid_request_error',
      details: { error_code: 'thread_unsupported_request', unsupported: ['verification'] },
    },
  })
  expect(await bodyFor(unfit('system'))).not.toHaveProperty('error.details')
})

it('a wait is never longer than a minute, and a hopeless retry is refused', async () => {
  failure = new ApiError('rate_limit_exceeded', 'm', { retryAfterSeconds: 86_400 })
  const waiting = await post('/v1/messages')
  expect(waiting.headers.get('retry-after')).toBe('59')
  failure = new ApiError('commit_delayed', 'm')
  expect((await post('/v1/messages')).headers.get('x-should-retry')).toBe('false')
})

it('a missing path below the base of Anthropic has its form', async () => {
  const reply = await post('/v1/verified/anthropic/v1/complete')
  expect(reply.status).toBe(404)
  expect(await reply.json()).toMatchObject({ type: 'error', error: { type: 'not_found_error' } })
  expect((await fetch(`${url}/v1/messages/`)).headers.get('request-id')).toMatch(/^req_/)
})

it('the documented statuses are those of the face, with its error', () => {
  const { paths } = createDocument(ROUTES, { title: '', description: '' }) as {
    readonly paths: Readonly<Record<string, { readonly post: JsonShape }>>
  }
  const statuses = (path: string) => Object.keys(paths[path]?.post.responses ?? {})
  expect(statuses('/v1/messages')).toEqual([
    '200',
    '400',
    '401',
    '402',
    '403',
    '408',
    '413',
    '415',
    '529',
    'default',
  ])
  expect(statuses('/v1/responses')).not.toContain('422')
  expect(JSON.stringify(paths['/v1/messages'])).toContain('AnthropicError')
  expect(paths['/v1/messages']?.post.security).toContainEqual({ XApiKeyHeader: ['inference'] })
})

type JsonShape = { readonly responses: object; readonly security: readonly object[] }

it.each([
  ['x-api-key alone', { 'x-api-key': KEY }, 503],
  ['Authorization alone', { authorization: `Bearer ${KEY}` }, 503],
  ['a key and an empty x-api-key', { authorization: `Bearer ${KEY}`, 'x-api-key': '' }, 503],
  ['x-api-key and an empty Authorization', { authorization: '', 'x-api-key': KEY }, 401],
  ['the same key twice', { authorization: `Bearer ${KEY}`, 'x-api-key': KEY }, 503],
  ['two different keys', { authorization: 'Bearer sk-other', 'x-api-key': KEY }, 401],
  ['a wrong x-api-key', { 'x-api-key': 'sk-other' }, 401],
  ['no key', {}, 401],
])('a call with %s is read', async (_, headers, status) => {
  events = null
  failure = new ApiError('not_ready', 'm')
  const reply = await post('/v1/responses', headers as Record<string, string>)
  expect(reply.status).toBe(status)
  if ('authorization' in headers && status === 401)
    expect(await reply.text()).toContain('different keys')
})

const statusOf = (path: string) =>
  new Promise<number | undefined>((resolve) => {
    const socket = new WebSocket(url.replace('http', 'ws') + path)
    socket.on('error', () => undefined)
    socket.on('unexpected-response', (_, { statusCode }) => {
      socket.terminate()
      resolve(statusCode)
    })
  })

it('a WebSocket at the path of Responses is refused with 426, without a key', async () => {
  expect(await statusOf('/v1/responses')).toBe(426)
  expect(await statusOf('/v1/responses?x=1')).toBe(426)
})

it('a WebSocket at another path is not refused in this way', async () => {
  expect(await statusOf('/v1/nodes')).toBe(418)
  expect(await statusOf('/v1/messages')).toBe(405)
})

const quota = { requests: { limit: 9, remaining: 8, resetSeconds: 30 }, tokens: null }

it('the rate headers of Messages have the time at which a limit resets', () => {
  expect(quotaHeaders(quota, ANTHROPIC_FACE, Date.UTC(2026, 0, 1))).toEqual({
    'x-ratelimit-limit-requests': '9',
    'x-ratelimit-remaining-requests': '8',
    'x-ratelimit-reset-requests': '30s',
    'anthropic-ratelimit-requests-limit': '9',
    'anthropic-ratelimit-requests-remaining': '8',
    'anthropic-ratelimit-requests-reset': '2026-01-01T00:00:30Z',
  })
  const tokens = { requests: null, tokens: quota.requests }
  expect(Object.keys(quotaHeaders(tokens, ANTHROPIC_FACE, 0))).toEqual(
    expect.arrayContaining([
      'anthropic-ratelimit-input-tokens-limit',
      'anthropic-ratelimit-output-tokens-remaining',
    ]),
  )
})

const fail = (code: ErrorCode, before: readonly string[]) => {
  events = before
  failure = new ApiError(code, 'broke')
}

it('a stream of Responses ends with response.failed, which continues it', async () => {
  fail('provider_error', [CREATED])
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0 })
  const stream = await client.responses.create({ model: 'm', input: 'x', stream: true })
  const given = []
  for await (const event of stream) given.push(event)
  expect(given.at(-1)).toEqual({
    type: 'response.failed',
    sequence_number: 1,
    response: {
      ...RESPONSE,
      status: 'failed',
      error: { code: 'provider_error', message: 'broke' },
    },
  })
  const final = client.responses.stream({ model: 'm', input: 'x' }).finalResponse()
  expect(await final).toMatchObject({ id: 'resp_1', status: 'failed' })
})

it('a stream of Responses without an event has both its begin and its end', async () => {
  fail('provider_error', [])
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0 })
  const final = await client.responses.stream({ model: 'm', input: 'x' }).finalResponse()
  expect(final).toMatchObject({ status: 'failed', error: { code: 'provider_error' } })
})

it('a stream of Messages ends with an error event, which the SDK throws', async () => {
  fail('overloaded', [])
  const client = new Anthropic({ baseURL: url, apiKey: KEY, maxRetries: 0 })
  const stream = client.messages.stream({
    model: 'm',
    max_tokens: 1,
    messages: [{ role: 'user', content: 'x' }],
  })
  const error = await stream.finalMessage().catch((thrown: unknown) => thrown)
  expect(error).toMatchObject({
    error: { error: { type: 'overloaded_error', message: 'broke' } },
  })
})
