import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { Router } from '@koa/router'
import Koa from 'koa'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import type { CallFailure, RequestState } from '../../../src/api/context.ts'
import { ApiError } from '../../../src/api/errors.ts'
import { streamEvents } from '../../../src/api/event-stream.ts'
import { createLogger } from '../../../src/observability/logger.ts'

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
router.get('/:fault', (context) =>
  streamEvents(context, { keepAliveMs: 1_000, now: Date.now, log }, async (writer) => {
    await writer.write('data: 1\n\n')
    throw FAULTS[context.path]
  }).then(() => void failures.push(context.state.failure)),
)
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

/** What is streamed, which is at its end when the fault is told. */
async function read(path: string): Promise<string> {
  return (await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`)).text()
}

it('logs what stands behind a fault in mid-stream, does not tell it, and notes the code', async () => {
  const text = await read('/ours')
  expect(text).toContain('event: error\n')
  expect(text).not.toContain('ECONNREFUSED')
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { level: 'error', msg: 'call could not be served', err: { message: 'connect ECONNREFUSED' } },
  ])
  await expect.poll(() => failures).toEqual([{ code: 'not_ready', status: 503 }])
})

it('logs a fault in mid-stream that nobody expected, and says nothing of it outside', async () => {
  expect(await read('/unexpected')).toMatch(
    /^data: 1\n\nevent: error\ndata: .*"internal_server_error".*\n\n$/,
  )
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { level: 'error', msg: 'unexpected error', err: { message: 'secret internals' } },
  ])
  await expect.poll(() => failures).toEqual([{ code: 'internal_server_error', status: 500 }])
})

it('notes a fault that is told in full, and does not log it besides', async () => {
  await read('/plain')
  await expect.poll(() => failures).toEqual([{ code: 'shutting_down', status: 503 }])
  expect(lines).toEqual([])
})
