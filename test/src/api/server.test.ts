import type { RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { createHttpServer, PIPELINED_MAX, REQUEST_HEAD_BYTES_MAX } from '#src/api/server.ts'
import { connectRaw } from '../../support/raw-http.ts'

const ends: (() => void)[] = []
afterEach(() => {
  for (const end of ends.splice(0)) end()
})

async function start(
  listener: RequestListener,
  change?: (server: ReturnType<typeof createHttpServer>) => void,
) {
  const server = createHttpServer(listener)
  change?.(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  ends.push(() => {
    server.close()
    server.closeAllConnections()
  })
  return connectRaw((server.address() as AddressInfo).port)
}

function errorIn(text: string) {
  return JSON.parse(text.slice(text.indexOf('\r\n\r\n') + 4))
}

it.each([
  ['what is not HTTP', 'hello\r\n\r\n', 400, 'malformed_request'],
  ['no host', 'GET / HTTP/1.1\r\n\r\n', 400, 'malformed_request'],
  [
    'two lengths',
    'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n',
    400,
    'malformed_request',
  ],
  [
    'a length and chunks, as smugglers send',
    'POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
    400,
    'malformed_request',
  ],
  [
    'a line break in a header',
    'GET / HTTP/1.1\r\nhost: x\r\na: b\nc: d\r\n\r\n',
    400,
    'malformed_request',
  ],
  [
    'too many headers',
    `GET / HTTP/1.1\r\nhost: x\r\na: ${'x'.repeat(REQUEST_HEAD_BYTES_MAX)}\r\n\r\n`,
    431,
    'headers_too_large',
  ],
])('the HTTP server answers %s in the envelope', async (_, request, status, code) => {
  const connection = await start(() => expect.unreachable())
  connection.write(request)
  const text = await connection.closed
  expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
  expect(text).toContain('content-type: application/json; charset=utf-8')
  expect(errorIn(text)).toMatchObject({ response: 'NOK', error: { status_code: status, code } })
})

it('the HTTP server ends a head that comes too slowly with an error', async () => {
  const connection = await start(
    () => expect.unreachable(),
    (server) => {
      server.headersTimeout = 100
      server.requestTimeout = 100
    },
  )
  connection.write('GET / HTTP/1.1\r\n')
  expect(errorIn(await connection.closed)).toMatchObject({ error: { code: 'request_timeout' } })
}, 15_000)

it('the HTTP server does not write into an answer that has begun', async () => {
  const connection = await start((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write('data: 1\n\n')
  })
  connection.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  await connection.until(/data: 1/)
  connection.write('garbage\r\n\r\n')
  expect(await connection.closed).not.toContain('malformed_request')
})

it('the HTTP server does not write where the answer to a whole request is due', async () => {
  const connection = await start(() => undefined)
  connection.write('GET / HTTP/1.1\r\nhost: x\r\n\r\ngarbage\r\n\r\n')
  expect(await connection.closed).toBe('')
})

it('the HTTP server answers a body that turns out to be malformed', async () => {
  const connection = await start(() => undefined)
  connection.write('POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n')
  expect(errorIn(await connection.closed)).toMatchObject({ error: { code: 'malformed_request' } })
})

it('the HTTP server leaves it to the reader of a body to say 100 Continue', async () => {
  const connection = await start((_, response) => void response.writeHead(413).end('no'))
  connection.write(
    'POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n',
  )
  const text = await connection.until(/no/)
  expect(text).toMatch(/^HTTP\/1.1 413/)
})

it('the HTTP server closes a connection that pipelines more requests than it may', async () => {
  const begun: string[] = []
  const answerLater = await start((request, response) => {
    begun.push(request.url ?? '')
    setTimeout(() => response.end(request.url), 50)
  })
  const ask = (count: number) =>
    Array.from({ length: count }, (_, index) => `GET /${index} HTTP/1.1\r\nhost: x\r\n\r\n`)
  answerLater.write(ask(PIPELINED_MAX).join(''))
  await answerLater.until(new RegExp(`/${PIPELINED_MAX - 1}$`))
  answerLater.write(ask(700).join(''))
  expect(await answerLater.closed).not.toMatch(new RegExp(`/${PIPELINED_MAX}`))
  expect(begun).toHaveLength(2 * PIPELINED_MAX)
})
