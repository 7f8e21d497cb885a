import { once } from 'node:events'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Router } from '@koa/router'
import Koa from 'koa'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { encodeUtf8 } from '#attestation/bytes.ts'
import { createMemoryBudget } from '#src/api/admission.ts'
import { answerErrors } from '#src/api/answer-errors.ts'
import { createCallSignals } from '#src/api/call-signals.ts'
import type { RequestState } from '#src/api/context.ts'
import { OPENAI_FACE } from '#src/api/faces.ts'
import { LEAST_RATE } from '#src/api/least-rate.ts'
import { DOCUMENT_READS_MAX, evidenceRoutes } from '#src/providers/evidence-routes.ts'
import { logRoutes, PUBLIC_READS_MAX } from '#src/verified/logs/log-routes.ts'
import {
  ACCOUNT_SEARCHES_MAX,
  EVIDENCE_READS_MAX,
  historyRoutes,
  SEARCHES_MAX,
} from '#src/verified/records/history-routes.ts'
import { outcomeOf, VERIFIED_PATH } from '../../../support/calls.ts'
import { recordLog } from '../../../support/chain.ts'

const NOBODY = `0x${'00'.repeat(20)}`
const LOG_PATHS = ['', `/${NOBODY}`, `/${NOBODY}/heads`, `/${NOBODY}/inclusion?index=0`].map(
  (path) => `/v1/log${path}`,
)
const EVIDENCE_PATH = `/v1/evidence/${'00'.repeat(32)}`
const DOCUMENT_PATH = `/v1/providers/evidence/${'00'.repeat(32)}`

/** Reads that wait until the test finishes them. */
let waiting: (() => void)[]
let server: Server

beforeEach(async () => {
  waiting = []
  const hold = <Value>(value: Value) =>
    new Promise<Value>((resolve) => waiting.push(() => resolve(value)))
  const wait = () => hold<object>({ fine: true })
  const waitText = () => hold<string>('{"fine":true}')
  const router = new Router<RequestState>()
  const serving = {
    signals: createCallSignals(),
    memory: createMemoryBudget(2 ** 20),
    rate: LEAST_RATE,
    keepAliveMs: 1_000,
    now: Date.now,
    log: recordLog().log,
  }
  const log = { list: wait, find: wait, heads: wait, inclusion: wait, leaves: wait }
  const routes = [
    ...logRoutes({ ...log, consistency: wait, bootStatement: wait, records: waitText }),
    ...historyRoutes({
      history: { list: waitText, find: waitText, erase: waitText },
      evidence: { find: waitText, findPublic: waitText },
      isEvidencePublic: true,
    }),
    ...evidenceRoutes({
      table: () => [],
      collected: () => [],
      evidence: {
        read: () => hold(encodeUtf8('{"fine":true}')),
        findNewest: async () => null,
        listKeys: async () => [],
      },
    }),
  ]
  for (const { method, path, serve } of routes)
    router.register(path, [method], (context) => serve(context, serving))
  const koa = new Koa<RequestState>()
  koa.use(answerErrors({ now: Date.now, log: recordLog().log }))
  koa.use((context, next) => {
    const accountId = context.get('account')
    context.state.client = '127.0.0.1'
    context.state.face = OPENAI_FACE
    context.state.caller = {
      accountId,
      keyId: 'k',
      scopes: ['inference'],
      tier: null,
      expiresAt: null,
    }
    return next()
  })
  server = koa.use(router.routes()).listen(0, '127.0.0.1')
  await once(server, 'listening')
})
afterEach(() => {
  server.closeAllConnections()
  server.close()
})

let accounts = 0

/** Reads as an account of its own, unless an account is named, so that no share limits the read. */
const read = (path: string, account = `account ${++accounts}`) =>
  fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, {
    headers: { account },
  })

/** Begins so many, and gives them once all wait. */
async function begin(count: number, pathOf: (at: number) => string, account?: string) {
  const before = waiting.length
  const running = Array.from({ length: count }, (_, at) => read(pathOf(at), account))
  await expect.poll(() => waiting.length).toBe(before + count)
  return running
}

async function finish(running: readonly Promise<Response>[]): Promise<void> {
  for (const end of waiting.splice(0)) end()
  for (const reply of await Promise.all(running))
    expect([reply.status, await reply.json()]).toEqual([200, { fine: true }])
}

it.each([
  ['logs', PUBLIC_READS_MAX, (at: number) => LOG_PATHS[at % LOG_PATHS.length] ?? ''],
  ['evidence', EVIDENCE_READS_MAX, () => EVIDENCE_PATH],
  ['documents of providers', DOCUMENT_READS_MAX, () => DOCUMENT_PATH],
])(
  'the gateway refuses reads of %s without a key beyond so many at once, and serves them after',
  async (...of) => {
    const [, max, pathOf] = of
    const running = await begin(max, pathOf)
    const refused = await read(pathOf(max))
    expect(refused.headers.get('retry-after')).toBe('1')
    expect(await outcomeOf(refused)).toEqual([503, 'overloaded'])
    await finish(running)
    await finish(await begin(1, pathOf))
  },
)

it('the gateway serves logs while reads of evidence take all their places, and the other way', async () => {
  const held = await begin(EVIDENCE_READS_MAX, () => EVIDENCE_PATH)
  const logs = await begin(PUBLIC_READS_MAX, () => '/v1/log')
  await finish([...held, ...logs])
  const all = await begin(PUBLIC_READS_MAX, () => '/v1/log')
  await finish([...all, ...(await begin(1, () => EVIDENCE_PATH))])
})

it('the gateway lets no account take all places of searches, and lists without a search at any time', async () => {
  const search = () => `${VERIFIED_PATH}?q=text`
  const mine = await begin(ACCOUNT_SEARCHES_MAX, search, 'mine')
  expect(await outcomeOf(await read(search(), 'mine'))).toEqual([503, 'overloaded'])
  const list = await begin(1, () => VERIFIED_PATH, 'mine')
  const left = SEARCHES_MAX - ACCOUNT_SEARCHES_MAX
  const others = await begin(left, search, 'others')
  expect(await outcomeOf(await read(search(), 'third'))).toEqual([503, 'overloaded'])
  await finish([...mine, ...list, ...others])
  await finish(await begin(ACCOUNT_SEARCHES_MAX, search, 'mine'))
})
