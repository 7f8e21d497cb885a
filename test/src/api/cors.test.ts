import { expect, it } from 'vitest'
import { EXPOSED_HEADERS, REQUESTED_HEADERS_LENGTH_MAX } from '#src/api/cors.ts'
import { postChat, VERIFIED_PATH } from '../../support/calls.ts'
import { type TestGateway, useGateway } from '../../support/gateway.ts'

const APP = 'https://app.example'

const some = await useGateway({ settings: { corsOrigins: [APP, 'http://localhost:5173'] } })
const none = await useGateway()
const all = await useGateway({ settings: { corsOrigins: ['*'] } })

function preflight(
  gateway: TestGateway,
  path: string,
  headers: Record<string, string>,
): Promise<Response> {
  return fetch(gateway.url + path, {
    method: 'OPTIONS',
    headers: { 'access-control-request-method': 'POST', ...headers },
  })
}

const corsHeadersOf = (reply: Response) =>
  [...reply.headers.keys()].filter((name) => name.startsWith('access-control-'))

it('an answer has no header for scripts without configured origins, and a preflight allows nothing', async () => {
  for (const reply of [
    await fetch(`${none.url}/healthz`, { headers: { origin: APP } }),
    await preflight(none, VERIFIED_PATH, { origin: APP }),
  ])
    expect([corsHeadersOf(reply), reply.headers.get('vary')]).toEqual([[], null])
})

it.each([APP, 'http://localhost:5173'])(
  'scripts of the configured origin %s may read answers and their headers',
  async (origin) => {
    const reply = await fetch(`${some.url}/healthz`, { headers: { origin } })
    expect(reply.headers.get('access-control-allow-origin')).toBe(origin)
    expect(reply.headers.get('access-control-expose-headers')).toBe(EXPOSED_HEADERS.join(', '))
    expect(reply.headers.get('vary')).toContain('origin')
    expect(reply.headers.get('access-control-allow-credentials')).toBeNull()
  },
)

it.each([
  'https://app.example.evil.example',
  'https://app.example:8443',
  'http://app.example',
  'null',
  'HTTPS://APP.EXAMPLE',
])('scripts of the other origin %s may read no answers', async (origin) => {
  const reply = await fetch(`${some.url}/healthz`, { headers: { origin } })
  expect([reply.status, corsHeadersOf(reply), reply.headers.get('vary')]).toEqual([
    200,
    [],
    'origin',
  ])
  expect(corsHeadersOf(await preflight(some, VERIFIED_PATH, { origin }))).toEqual([])
})

it('scripts can read errors too: of authentication, of validation, and of an unknown route', async () => {
  const headers = { origin: APP }
  for (const reply of [
    await fetch(some.url + VERIFIED_PATH, { headers }),
    await postChat(some, {}, { headers }),
    await fetch(`${some.url}/nothing`, { headers }),
  ]) {
    expect(reply.status).toBeGreaterThanOrEqual(400)
    expect(reply.headers.get('access-control-allow-origin')).toBe(APP)
  }
})

it('a preflight needs no key, and is told the methods of the path and the headers it asks for', async () => {
  const asked = 'authorization,content-type,x-stainless-lang,idempotency-key'
  const reply = await preflight(some, VERIFIED_PATH, {
    origin: APP,
    'access-control-request-headers': asked,
  })
  expect(reply.status).toBe(200)
  expect(reply.headers.get('access-control-allow-methods')).toBe('HEAD, GET, POST')
  expect(reply.headers.get('access-control-allow-headers')).toBe(asked)
  expect(reply.headers.get('access-control-max-age')).toBe('7200')
})

it.each(['x y', 'x,,y', `x${'y'.repeat(REQUESTED_HEADERS_LENGTH_MAX)}`])(
  'a preflight that asks for the headers %j is given no headers',
  async (asked) => {
    const reply = await preflight(some, '/', {
      origin: APP,
      'access-control-request-headers': asked,
    })
    expect(reply.headers.get('access-control-allow-headers')).toBeNull()
  },
)

it('scripts of every origin may call when * is configured, without credentials of the browser', async () => {
  const reply = await preflight(all, VERIFIED_PATH, { origin: 'https://anyone.example' })
  expect(reply.headers.get('access-control-allow-origin')).toBe('*')
  expect(reply.headers.get('access-control-allow-credentials')).toBeNull()
})
