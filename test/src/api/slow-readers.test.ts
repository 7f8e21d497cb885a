import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { connect, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { z } from 'zod'
import { type Admission, createAdmission } from '#src/api/admission.ts'
import { type App, openApp } from '#src/api/app.ts'
import { ApiError } from '#src/api/errors.ts'
import { defineRoute } from '#src/api/route.ts'
import { createStallCheck, STALL_CHECKS } from '#src/api/stalled-readers.ts'
import { createLogger } from '#src/observability/logger.ts'

const MIB = 1024 * 1024
/** Much more than the buffers of both ends take. */
const LONG = 8 * MIB
const STALL_MS = 1_200
/** The answers of all accounts get half of this. */
const MEMORY = 176 * MIB
const PLACES = 4

const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
const places = createAdmission({ callsMax: PLACES, bytesMax: MIB })
const pages = createAdmission({ callsMax: 100, bytesMax: 0 })
/** Resolves when the handler of /v1/late may answer. */
let late = Promise.withResolvers<void>()
/** Its response, once its handler has begun. */
let begun: ServerResponse | null = null
const streams: Readable[] = []

type Handle = Parameters<typeof defineRoute>[0]['handler']

function route(method: 'GET' | 'POST', path: string, handler: Handle, admission?: Admission) {
  return defineRoute({
    method,
    path,
    tag: 'Test',
    summary: 'Answers',
    scope: 'inference',
    ...(admission === undefined ? {} : { admission }),
    reply: { name: 'Answer', schema: z.unknown() },
    handler,
  })
}

const LONG_TEXT = JSON.stringify('x'.repeat(LONG))
const long = async () => LONG_TEXT
const routes = [
  route('GET', '/v1/long', long, places),
  route('POST', '/v1/long', long, places),
  route('GET', '/v1/short', async () => ({}), places),
  route('POST', '/v1/none', async () => undefined, places),
  route(
    'GET',
    '/v1/fault',
    async () => {
      throw new ApiError('not_found', 'nothing')
    },
    places,
  ),
  route(
    'GET',
    '/v1/late',
    async ({ context }) => {
      begun = context.res
      await late.promise
      return '"late"'
    },
    places,
  ),
  route(
    'GET',
    '/v1/stream',
    async ({ context }) => {
      begun = context.res
      await late.promise
      const stream = Readable.from(['x'])
      streams.push(stream)
      context.body = stream
      return undefined
    },
    places,
  ),
  route(
    'GET',
    '/v1/events',
    ({ stream }) =>
      stream(async (writer) => {
        await writer.write('data: 1\n\n')
        writer.end(`data: ${'x'.repeat(LONG)}\n\n`)
      }),
    places,
  ),
  route('GET', '/v1/page', long, pages),
]

function open(stallTimeoutMs: number): App {
  return openApp(
    {
      keepAliveMs: 60_000,
      corsOrigins: [],
      memoryBytesMax: MEMORY,
      shutdownGraceMs: 100,
      logLevel: 'silent',
      trustedProxies: [],
      isStaging: false,
    },
    {
      routes,
      pages: { routes: [], showMissing: async () => undefined },
      keys: {
        authenticate: async (key) => ({
          accountId: key,
          keyId: key,
          scopes: ['inference'],
          tier: null,
          expiresAt: null,
        }),
      },
      sockets: { path: '/v1/nodes', handleUpgrade: () => {}, stop: async () => undefined },
      observers: [],
      isDraining: () => false,
      stallTimeoutMs,
      log,
    },
  )
}

let app: App
let port = 0
const sockets: Socket[] = []

/** Starts an app for the tests of a block. */
function useApp(stallTimeoutMs: number): void {
  beforeAll(async () => {
    app = open(stallTimeoutMs)
    port = (await app.listen({ host: '127.0.0.1', port: 0 })).port
  })
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy()
    await expect.poll(() => places.load().calls).toBe(0)
  })
  afterAll(() => app.close())
}

type Asked = { readonly account?: string; readonly method?: string; readonly count?: number }

/** Sends requests in one packet, and reads no answer. */
async function ask(path: string, { account = 'a', method = 'GET', count = 1 }: Asked = {}) {
  const socket = connect({ port, host: '127.0.0.1' })
  sockets.push(socket)
  socket.on('error', () => undefined)
  socket.pause()
  await once(socket, 'connect')
  const head = `${method} ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${account}\r\n`
  socket.write(`${head}content-length: 0\r\n\r\n`.repeat(count))
  return socket
}

async function statusOf(path: string, account: string): Promise<number> {
  const headers = { authorization: `Bearer ${account}`, 'accept-encoding': 'identity' }
  const reply = await fetch(`http://127.0.0.1:${port}${path}`, { headers })
  await reply.arrayBuffer()
  return reply.status
}

const calls = () => places.load().calls

describe('the place of an answer', () => {
  useApp(60_000)

  it('an answer to POST keeps its place until it was sent', async () => {
    const readers = await Promise.all(
      Array.from({ length: PLACES }, (_, index) =>
        ask('/v1/long', { account: `account-${index}`, method: 'POST' }),
      ),
    )
    await expect.poll(calls).toBe(PLACES)
    expect(await statusOf('/v1/short', 'other')).toBe(503)
    for (const reader of readers) reader.resume()
    await expect.poll(calls).toBe(0)
    expect(await statusOf('/v1/short', 'other')).toBe(200)
  })

  it('a text that was only read keeps no place, so that slow readers take none of others', async () => {
    const read = Promise.withResolvers<void>()
    const reader = await ask('/v1/long', { count: PLACES })
    reader.once('readable', () => read.resolve())
    await read.promise
    await expect.poll(calls).toBe(0)
    expect(await statusOf('/v1/short', 'other')).toBe(200)
  })

  it('a stream for a caller that left is closed, also behind another answer', async () => {
    late = Promise.withResolvers()
    begun = null
    const reader = await ask('/v1/stream', { count: 3 })
    await expect.poll(calls).toBe(3)
    reader.destroy()
    await expect.poll(() => begun?.closed).toBe(true)
    late.resolve()
    await expect.poll(calls).toBe(0)
    expect(streams.map(({ destroyed }) => destroyed)).toEqual([true, true, true])
  })

  it.each([
    ['an error', 'GET', '/v1/fault'],
    ['HEAD', 'HEAD', '/v1/long'],
    ['an empty answer', 'POST', '/v1/none'],
    ['a short answer', 'GET', '/v1/short'],
  ])('%s gives back its place on a connection that stays open', async (_, method, path) => {
    const socket = await ask(path, { method, count: 2 })
    socket.resume()
    await once(socket, 'data')
    await expect.poll(calls).toBe(0)
    socket.write(`GET /v1/short HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a\r\n\r\n`)
    await once(socket, 'data')
    await expect.poll(calls).toBe(0)
    expect(socket.destroyed).toBe(false)
  })
})

describe('the memory of answers', () => {
  useApp(60_000)

  it('answers that wait for their readers hold a bounded amount of memory', async () => {
    const read = (account: string) => statusOf('/v1/page', account)
    // A page counts 16 MiB: four fit for one account, five for all.
    const readers = [await ask('/v1/page', { count: 4 })]
    await once(readers[0] ?? expect.unreachable(), 'readable')
    expect(await read('a')).toBe(503)
    expect(await read('b')).toBe(200)
    const other = await ask('/v1/page', { account: 'b' })
    await once(other, 'readable')
    readers.push(other)
    expect(await read('c')).toBe(503)
    expect(await statusOf('/v1/short', 'a')).toBe(200)
    for (const reader of readers) reader.destroy()
    await expect.poll(() => read('c')).toBe(200)
    expect(app.memory().bytes).toBe(0)
  })
})

describe('a stalled reader', () => {
  useApp(STALL_MS)

  it.each([
    ['POST', '/v1/long'],
    ['GET', '/v1/events'],
  ])(
    'a reader that takes nothing of %s %s is cut, although it still sends',
    async (method, path) => {
      await ask('/v1/short')
      const reader = await ask(path, { method })
      const chatter = setInterval(() => reader.write('\r\n'), 50)
      try {
        await expect.poll(calls).toBe(1)
        await expect.poll(calls, { interval: 100 }).toBe(0)
      } finally {
        clearInterval(chatter)
      }
      // The idle connection stays.
      await expect.poll(async () => (await app.server.load()).open).toBe(1)
    },
  )

  it('a reader that has taken a large step gets more time for the next', () => {
    const check = createStallCheck()
    const handle = { bytesWritten: 1_000_000, writeQueueSize: 900_000 }
    let isCut = false
    const destroy = () => {
      isCut = true
    }
    const socket = { _handle: handle, writableLength: 1, destroy } as unknown as Socket
    const checksUntilCut = () => {
      isCut = false
      let checks = 0
      while (!isCut && checks < 100) {
        check([socket])
        checks++
      }
      return checks - 1
    }
    // The system already holds a part of the first answer, up to its whole buffer.
    expect(checksUntilCut()).toBe(STALL_CHECKS + 20)
    handle.writeQueueSize -= 50_000
    expect(checksUntilCut()).toBe(STALL_CHECKS + 10)
    handle.writeQueueSize -= 800_000
    expect(checksUntilCut()).toBe(STALL_CHECKS + 24)
  })
})
