import { once } from 'node:events'
import { request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import Koa from 'koa'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { COMPRESSED_BYTES_MIN, compressAnswers } from '#src/api/compress.ts'
import { type RequestState, sendJsonText } from '#src/api/context.ts'

const LONG = JSON.stringify({ text: 'naïve '.repeat(COMPRESSED_BYTES_MIN) })

const app = new Koa<RequestState>()
app.use(compressAnswers())
app.use(async (context) => {
  if (context.path === '/stream') {
    context.respond = false
    context.res.writeHead(200, { 'content-type': 'text/event-stream' }).end(`data: ${LONG}\n\n`)
  } else sendJsonText(context, context.path === '/short' ? '{}' : LONG)
})
const server = app.listen(0, '127.0.0.1')
beforeAll(async () => {
  if (!server.listening) await once(server, 'listening')
})
afterAll(() => void server.close())

/** Without what fetch adds and undoes. */
async function ask(path: string, accepted: string | null, method = 'GET') {
  const { port } = server.address() as AddressInfo
  const headers = accepted === null ? {} : { 'accept-encoding': accepted }
  const [reply] = await once(request({ port, path, method, headers }).end(), 'response')
  const parts: Buffer[] = []
  for await (const part of reply) parts.push(part)
  return { headers: reply.headers, body: Buffer.concat(parts) }
}

it.each([
  ['br', 'br'],
  ['gzip', 'gzip'],
  ['gzip;q=0.5, br;q=0.9', 'br'],
  ['br;q=0, gzip', 'gzip'],
  ['deflate, gzip', 'gzip'],
])('a long JSON answer to a client that accepts %j is sent as %s', async (accepted, coding) => {
  const { headers, body } = await ask('/', accepted)
  expect(headers).toMatchObject({
    'content-encoding': coding,
    'content-length': String(body.length),
    'content-type': 'application/json; charset=utf-8',
    vary: 'accept-encoding',
  })
  expect(body.length).toBeLessThan(LONG.length / 10)
  expect((coding === 'br' ? brotliDecompressSync(body) : gunzipSync(body)).toString()).toBe(LONG)
})

it.each([null, 'identity', 'zstd', 'br;q=0', 'gzip;q=0.1, identity;q=1'])(
  'a long JSON answer to a client that says %j is sent as it is, and says that it may vary',
  async (accepted) => {
    const { headers, body } = await ask('/', accepted)
    expect(headers['content-encoding']).toBeUndefined()
    expect(headers.vary).toBe('accept-encoding')
    expect(body.toString()).toBe(LONG)
  },
)

it.each([
  ['a short answer', '/short', 'GET'],
  ['an answer to POST', '/', 'POST'],
  ['a stream', '/stream', 'GET'],
])('the body of %s is never compressed', async (_, path, method) => {
  expect((await ask(path, 'br, gzip', method)).headers['content-encoding']).toBeUndefined()
})
