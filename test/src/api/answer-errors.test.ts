import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import Koa from 'koa'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { answerErrors } from '#src/api/answer-errors.ts'
import type { RequestState } from '#src/api/context.ts'
import { ApiError } from '#src/api/errors.ts'
import { OPENAI_FACE } from '#src/api/faces.ts'
import { createLogger } from '#src/observability/logger.ts'

const lines: string[] = []
const log = createLogger({
  level: 'info',
  destination: { write: (line: string) => void lines.push(line) },
})
const app = new Koa<RequestState>()
app.use((context, next) => {
  context.state.face = OPENAI_FACE
  return next()
})
app.use(answerErrors({ now: () => performance.now(), log }))
app.use((context) => {
  if (context.path === '/ours') throw new TypeError('secret internals')
  throw new ApiError('not_ready', 'Come back later', { cause: new Error('connect ECONNREFUSED') })
})
const server = app.listen(0, '127.0.0.1')
beforeAll(async () => {
  if (!server.listening) await once(server, 'listening')
})
afterAll(() => void server.close())

const get = (path: string) =>
  fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`)

it('an answer says nothing about a fault of ours, which is logged', async () => {
  const reply = await get('/ours')
  expect(reply.status).toBe(500)
  expect(await reply.json()).toEqual({
    response: 'NOK',
    error: {
      status_code: 500,
      code: 'internal_server_error',
      message: 'Internal server error',
      type: 'server_error',
      param: null,
    },
  })
  expect(lines.join()).toContain('unexpected error')
})

it('an answer does not show the cause of a refusal, which is logged', async () => {
  const reply = await get('/refused')
  expect(reply.status).toBe(503)
  expect(await reply.text()).not.toContain('ECONNREFUSED')
  expect(lines.join()).toContain('connect ECONNREFUSED')
})
