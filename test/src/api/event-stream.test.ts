import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Router } from '@koa/router'
import Koa from 'koa'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import type { CallFailure, RequestState } from '#src/api/context.ts'
import { ApiError, CallerLeftError } from '#src/api/errors.ts'
import { createEventWriter, type EventWriter, streamEvents } from '#src/api/event-stream.ts'
import { OPENAI_FACE } from '#src/api/faces.ts'
import { createLogger } from '#src/observability/logger.ts'
import { connectRaw } from '../../support/raw-http.ts'

const FAULTS: Readonly<Record<string, unknown>> = {
  '/ours': new ApiError('not_ready', 'Come back later', {
    cause: new Error('connect ECONNREFUSED'),
  }),
  '/plain': new ApiError('shutting_down', 'This instance is shutting down'),
  '/unexpected': new TypeError('secret internals'),
}

const lines: string[] = []
const failures: (CallFailure | null)[] = []
const log = createLogger({
  level: 'info',
  destination: { write: (line: string) => void lines.push(line) },
})
const router = new Router<RequestState>()
router.get('/:fault', (context) => {
  context.state.face = OPENAI_FACE
  return streamEvents(context, { keepAliveMs: 1_000, now: Date.now, log }, async (writer) => {
    await writer.write('data: 1\n\n')
    throw FAULTS[context.path]
  }).then(() => void failures.push(context.state.failure))
})
const app = new Koa<RequestState>().use(router.routes())
const server = app.listen(0, '127.0.0.1')
beforeAll(async () => {
  if (!server.listening) await once(server, 'listening')
})
beforeEach(() => {
  lines.length = 0
  failures.length = 0
})
afterAll(() => void server.close())

/** What is streamed; the stream ends when the fault is reported. */
async function read(path: string): Promise<string> {
  return (await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`)).text()
}

it('a fault in mid-stream has its cause logged and not told, and its code noted', async () => {
  const text = await read('/ours')
  expect(text).toContain('event: error\n')
  expect(text).not.toContain('ECONNREFUSED')
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { level: 'error', msg: 'call could not be served', err: { message: 'connect ECONNREFUSED' } },
  ])
  await expect.poll(() => failures).toEqual([{ code: 'not_ready', status: 503 }])
})

it('a fault in mid-stream that was not expected is logged, and nothing is said about it outside', async () => {
  expect(await read('/unexpected')).toMatch(
    /^data: 1\n\nevent: error\ndata: .*"internal_server_error".*\n\n$/,
  )
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { level: 'error', msg: 'unexpected error', err: { message: 'secret internals' } },
  ])
  await expect.poll(() => failures).toEqual([{ code: 'internal_server_error', status: 500 }])
})

it('a fault in mid-stream that is told in full is noted, and not logged besides', async () => {
  await read('/plain')
  await expect.poll(() => failures).toEqual([{ code: 'shutting_down', status: 503 }])
  expect(lines).toEqual([])
})

const ends: (() => void)[] = []
afterEach(() => {
  for (const end of ends.splice(0)) end()
})

async function start(options: { keepAliveMs?: number; drainTimeoutMs?: number } = {}) {
  let opened = 0
  const ready = Promise.withResolvers<{ writer: EventWriter; response: ServerResponse }>()
  const server = createServer((_, response) => {
    const writer = createEventWriter({
      response,
      keepAliveMs: 60_000,
      drainTimeoutMs: 60_000,
      ...options,
      onOpen: () => opened++,
    })
    ends.push(() => writer.close())
    ready.resolve({ writer, response })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  ends.push(() => {
    server.close()
    server.closeAllConnections()
  })
  const connection = await connectRaw((server.address() as AddressInfo).port)
  connection.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  return { connection, ...(await ready.promise), countOpened: () => opened }
}

it('an event writer sends the head when it is opened, once', async () => {
  const { connection, writer, countOpened } = await start()
  expect(writer.isOpen()).toBe(false)
  writer.open()
  writer.open()
  const head = await connection.until(/\r\n\r\n/)
  expect(head).toMatch(/^HTTP\/1.1 200/)
  expect(head).toContain('content-type: text/event-stream; charset=utf-8')
  expect(head).toContain('cache-control: no-cache')
  expect(head).toContain('x-accel-buffering: no')
  expect(countOpened()).toBe(1)
})

it('an event writer opens itself and sends comments while nothing comes', async () => {
  const { connection, writer } = await start({ keepAliveMs: 20 })
  await connection.until(/200 OK[\s\S]*: ping\n\n[\s\S]*: ping\n\n/)
  await writer.write('data: 1\n\n')
  writer.end('data: [DONE]\n\n')
  await connection.until(/0\r\n\r\n$/)
})

it('an event writer that is closed leaves no timer, and one whose reader caught up neither', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'setTimeout', 'clearTimeout'] })
  try {
    const { connection, writer, response } = await start()
    writer.open()
    const listeners = () => ['drain', 'close'].map((name) => response.listenerCount(name))
    const before = listeners()
    connection.socket.pause()
    const writing = writer.write('x'.repeat(4_000_000))
    connection.socket.resume()
    await writing
    expect(listeners()).toEqual(before)
    await vi.advanceTimersByTimeAsync(60_000)
    expect(response.destroyed).toBe(false)
    writer.end('data: [DONE]\n\n')
    const timers = vi.getTimerCount()
    writer.close()
    expect(vi.getTimerCount()).toBe(timers - 1)
  } finally {
    vi.useRealTimers()
  }
})

it('an event writer ends with an error event and no [DONE]', async () => {
  const { connection, writer } = await start()
  await writer.write('data: 1\n\n')
  const error = new ApiError('provider_error', 'broke')
  writer.end(OPENAI_FACE.errorEvents(error, { requestId: 'req_1', startedAtMs: 0 }, null))
  const text = await connection.until(/0\r\n\r\n$/)
  expect(text).toContain('event: error\ndata: {"response":"NOK","error":{"status_code":502,')
  expect(text).not.toContain('[DONE]')
})

it('an event writer cuts what was not ended, so that half an answer does not look whole', async () => {
  const { connection, writer } = await start()
  await writer.write('data: 1\n\n')
  writer.close()
  expect(await connection.closed).not.toMatch(/0\r\n\r\n$/)
})

it('an event writer holds back while the reader does not read, and goes on when it does', async () => {
  const { connection, writer, response } = await start()
  connection.socket.pause()
  let written = 0
  const writing = (async () => {
    for (; written < 16; written++) await writer.write(`data: ${'x'.repeat(1_000_000)}\n\n`)
  })()
  await expect.poll(() => response.writableNeedDrain).toBe(true)
  expect(written).toBeLessThan(16)
  connection.socket.resume()
  await writing
  expect(written).toBe(16)
})

it('an event writer cuts off a reader that does not read for too long', async () => {
  const { connection, writer } = await start({ drainTimeoutMs: 100, keepAliveMs: 10 })
  // Tests before this one, in the same worker, may have left theirs.
  const heldBefore = process.memoryUsage().arrayBuffers
  connection.socket.pause()
  const flood = async () => {
    while (true) await writer.write(`data: ${'x'.repeat(1_000_000)}\n\n`)
  }
  await expect(flood()).rejects.toBeInstanceOf(CallerLeftError)
  expect(process.memoryUsage().arrayBuffers - heldBefore).toBeLessThan(200e6)
})

it('an event writer says that the caller left, also while it waits for room', async () => {
  const { connection, writer, response } = await start()
  connection.socket.pause()
  const flood = async () => {
    while (true) await writer.write(`data: ${'x'.repeat(1_000_000)}\n\n`)
  }
  const failure = expect(flood()).rejects.toBeInstanceOf(CallerLeftError)
  await expect.poll(() => response.writableNeedDrain).toBe(true)
  connection.socket.destroy()
  await failure
  expect(() => writer.end('data: 1\n\n')).toThrow(CallerLeftError)
})
