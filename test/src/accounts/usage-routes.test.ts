import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { createRateLimitsStore, type KeyUsage } from '#src/accounts/rate-limits-store.ts'
import { reportSums } from '#src/accounts/usage-report.ts'
import {
  createUsageStore,
  USAGE_AGE_MAX_SECONDS,
  USAGE_HOURS_AGE_MAX_SECONDS,
} from '#src/accounts/usage-store.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat } from '../../support/calls.ts'
import { useDatabase } from '../../support/databases.ts'
import { type TestGateway, useGateway } from '../../support/gateway.ts'
import { answerWhole } from '../../support/scripted-enclave.ts'

/** 2026-11-21 00:00:00 UTC. */
const MIDNIGHT = 1_795_219_200
const HOUR = 3_600
const DAY = 86_400

const database = await useDatabase()

/** Stores with a clock of their own, and an account and a process that no other test has. */
function setUp() {
  const clock = { at: MIDNIGHT }
  const now = () => clock.at
  const limits = createRateLimitsStore(database, now)
  const store = createUsageStore(database, now)
  const [accountId, processId] = [crypto.randomUUID(), crypto.randomUUID()]
  const usage = (tokens: number, of: Partial<KeyUsage> = {}): KeyUsage => ({
    accountId,
    keyId: 'k',
    operation: 'chat',
    family: 'gpt',
    model: 'gpt-4o',
    requests: 1,
    tokens,
    promptTokens: 0,
    completionTokens: 0,
    money: 0,
    unpricedRequests: 1,
    ...of,
  })
  const count = (batch: number, ...usages: KeyUsage[]) =>
    limits.step({ processId, leaseSeconds: 15, batch, buckets: [], usages })
  const read = async (
    per: 'hour' | 'day' | 'month' | 'total',
    { from = 0, by = ['operation'] }: Partial<Parameters<typeof store.report>[0]> = {},
  ) => {
    const account = { id: accountId }
    const rows = await store.report({ account, key: null, from, until: clock.at + DAY, per, by })
    if (typeof rows === 'string') throw new Error(rows)
    return rows
  }
  return { clock, accountId, store, usage, count, read }
}

it('usage is added up by hour, operation and family, and read by any period', async () => {
  const { clock, usage, count, read } = setUp()
  await count(1, usage(5), usage(0, { operation: 'search', family: 'none' }))
  clock.at += HOUR - 1
  await count(2, usage(7), usage(9, { accountId: crypto.randomUUID() }))
  clock.at += 1
  await count(3, usage(1), usage(1))
  expect(await read('hour')).toMatchObject([
    { start: MIDNIGHT, operation: 'chat', family: 'gpt', requests: 2, tokens: 12 },
    { start: MIDNIGHT, operation: 'search', family: 'none', requests: 1, tokens: 0 },
    { start: MIDNIGHT + HOUR, operation: 'chat', family: 'gpt', requests: 2, tokens: 2 },
  ])
  expect(await read('hour', { from: MIDNIGHT + 1 })).toHaveLength(1)
  const [chat] = await read('day')
  expect(chat).toEqual({ ...chat, start: MIDNIGHT, requests: 4, tokens: 14 })
})

it('usage is counted once of a batch that is sent twice, also at the same time', async () => {
  const { usage, count, read } = setUp()
  await Promise.all([count(1, usage(5)), count(1, usage(5)), count(1, usage(5))])
  await count(2, usage(1))
  await count(1, usage(5))
  expect(await read('day')).toMatchObject([{ requests: 2, tokens: 6 }])
})

it('usage is told apart by key, and by model, however callers name it', async () => {
  const { usage, count, read } = setUp()
  await count(1, usage(5), usage(7, { keyId: 'other' }), usage(1, { model: '日本語 \u{1F600}' }))
  expect(await read('total', { by: ['key'] })).toMatchObject([
    { key: 'k', requests: 2, tokens: 6, operation: null, model: null },
    { key: 'other', requests: 1, tokens: 7 },
  ])
  const models = await read('month', { by: ['model'] })
  expect(models.map(({ model, start }) => [model, start])).toEqual([
    ['gpt-4o', Date.UTC(2026, 10) / 1000],
    ['日本語 \u{1F600}', Date.UTC(2026, 10) / 1000],
  ])
})

it('usage keeps no more than a thousand rows of an hour apart, and loses nothing of the others', async () => {
  const { usage, count, read } = setUp()
  const named = (from: number, many: number) =>
    Array.from({ length: many }, (_, n) => usage(1, { model: `model ${from + n}` }))
  await count(1, ...named(0, 1_000))
  await count(2, ...named(990, 20))
  const models = await read('total', { by: ['model'] })
  expect(models).toHaveLength(1_001)
  expect(models.find(({ model }) => model === '*')).toMatchObject({ requests: 10, tokens: 10 })
  expect(models.find(({ model }) => model === 'model 995')).toMatchObject({ requests: 2 })
})

it('usage goes on by days when its hours are old, and is removed when its days are', async () => {
  const { clock, store, usage, count, read } = setUp()
  const of = { promptTokens: 2, completionTokens: 3, money: 10, unpricedRequests: 0 }
  for (const batch of [1, 2, 3]) {
    await count(batch, usage(5, of))
    clock.at += 5 * HOUR
  }
  const days = await read('day', { by: ['key', 'model'] })
  expect(days).toMatchObject([{ requests: 3, tokens: 15, prompt_tokens: 6, money: '30' }])
  clock.at = MIDNIGHT + USAGE_HOURS_AGE_MAX_SECONDS + DAY
  await Promise.all([store.prune(), store.prune()])
  expect(await read('day', { by: ['key', 'model'] })).toEqual(days)
  expect(await read('hour')).toEqual([])
  clock.at = MIDNIGHT + USAGE_AGE_MAX_SECONDS
  await store.prune()
  expect(await read('month')).toHaveLength(1)
  clock.at += 1
  await store.prune()
  expect(await read('month')).toEqual([])
})

it('usage has no split, key, model or price of what a gateway from before counted', async () => {
  const { clock, accountId, read } = setUp()
  const [process, old] = [crypto.randomUUID(), { account: accountId, operation: 'chat' }]
  const usages = JSON.stringify([{ ...old, family: 'gpt', requests: 2, tokens: 9 }])
  await sql`select usage_step(${process}::uuid, 15, 1, '[]'::text::json, ${usages}::text::json,
      ${clock.at}::bigint)`.execute(database.queries)
  const [row] = await read('day', { by: ['key', 'model'] })
  expect(row).toMatchObject({ key: null, model: null, unsplit_tokens: 9, unpriced_requests: 2 })
  expect(row && reportSums(row)).toMatchObject({ prompt_tokens: null, money: null, tokens: 9 })
})

const gateway = await useGateway()
gateway.enclave.setScript(answerWhole({}))

const usageOf = async (query = '', of: Pick<TestGateway, 'url' | 'key'> = gateway) =>
  (await (await getPath(of, `/v1/dashboard/usage${query}`)).json()) as Record<string, unknown>

it("the dashboard's usage has what the account used until now, of its own alone", async () => {
  expect(await usageOf()).toMatchObject({ requests: 0, tokens: 0, usage: [] })
  await postChat(gateway, CHAT_REQUEST)
  await postChat(gateway, { ...CHAT_REQUEST, user: 'again' })
  const { text: key } = await gateway.keys.create({ accountName: 'others', name: 'k' })
  const day = await usageOf()
  expect(day).toMatchObject({ per: 'day', requests: 2, tokens: expect.any(Number) })
  expect(day.usage).toMatchObject([{ operation: 'verified', model_family: 'other', requests: 2 }])
  expect((await usageOf('?per=hour')).usage).toMatchObject([{ requests: 2, tokens: day.tokens }])
  expect(await usageOf('', { ...gateway, key })).toMatchObject({ requests: 0, usage: [] })
  expect(await usageOf(`?since=0&until=${DAY}`)).toMatchObject({
    since: 0,
    until: DAY,
    usage: [],
  })
})

it.each([
  ['?per=minute', 'per'],
  ['?since=-1', 'since'],
  ['?since=1&until=1', 'since'],
  [`?since=1&until=${366 * DAY + 1}`, 'since'],
  [`?per=hour&since=${HOUR}&until=${HOUR + 7 * DAY + 1}`, 'since'],
  ['?until=99999999999999999999', 'until'],
  ["?since=0'--", 'since'],
  ['?per=month&since=0&until=94694401', 'since'],
  ['?by=account', 'by'],
  ['?by=model,', 'by'],
  ['?key=x', 'key'],
  ['?format=xml', 'format'],
])("the dashboard's usage refuses the query %s", async (query, name) => {
  const reply = await getPath(gateway, `/v1/dashboard/usage${query}`)
  expect(await outcomeOf(reply)).toEqual([422, [`query.${name}`]])
})
