import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { withBudgets } from '#src/accounts/budgets.ts'
import { createBudgetsStore } from '#src/accounts/budgets-store.ts'
import { createRateLimiter, type LimitedCall } from '#src/accounts/limits/limiter.ts'
import { UNLIMITED_TIERS } from '#src/accounts/limits/tiers.ts'
import { keysIn } from '#src/accounts/open-keys.ts'
import { ANSWER_TOKENS_MAX, NANO, type Prices } from '#src/accounts/prices.ts'
import { createRateLimitsStore } from '#src/accounts/rate-limits-store.ts'
import { createLogger } from '#src/observability/logger.ts'
import type { Database } from '#src/storage/database.ts'
import { createProcessesStore } from '#src/storage/processes-store.ts'
import { useConnections } from '../../support/databases.ts'

const FREE = {
  models: ['m'],
  perMillionInputTokens: 0n,
  perMillionOutputTokens: 0n,
  perRequest: 0n,
  perImage: 0n,
}
const PRICES: Prices = [
  {
    ...FREE,
    perMillionInputTokens: 3n * NANO,
    perMillionOutputTokens: 9n * NANO,
    answerTokensMax: 5_000,
  },
]
/** In the middle of a day and a month, UTC. */
const NOON = Date.UTC(2027, 4, 15, 12) / 1000

/** Two gateways are two pools of connections to one database, each a process of its own. */
const databases = await useConnections(2)
let clockSeconds = NOON
const clock = () => clockSeconds

async function setUp() {
  clockSeconds = NOON
  const gateways = await Promise.all(
    databases.map(async (database) => {
      const processId = crypto.randomUUID()
      const store = createBudgetsStore(database, clock)
      await createProcessesStore(database, clock).enter(processId, 90 * 86_400)
      const log = { warn: () => undefined, error: () => undefined }
      const lease = { id: () => processId }
      const unlimited = createRateLimiter({
        store: createRateLimitsStore(database, clock),
        tiers: () => UNLIMITED_TIERS,
        prices: () => PRICES,
        lease,
        leaseSeconds: 90 * 86_400,
        log: createLogger({ level: 'silent', destination: process.stderr }),
      })
      const limiter = withBudgets({ limiter: unlimited, store, prices: () => PRICES, lease, log })
      return { database, processId, store, limiter }
    }),
  )
  const [first, second] = gateways
  if (first === undefined || second === undefined) throw new Error('expected two gateways')
  const account = `account ${crypto.randomUUID()}`
  const keys = keysIn(first.database)
  const { key, text } = await keys.create({ accountName: account, name: 'k' })
  const call = {
    accountId: key.accountId,
    keyId: key.id,
    isBudgeted: true,
    tier: null,
    kind: 'chat' as const,
    model: 'm',
    estimate: 100,
    promptTokens: 40,
  } as const
  const budget = { account, key: null, per: 'day' } as const
  const usedOf = async () =>
    (await first.store.list()).flatMap((one) => (one.account === account ? [one.used] : []))
  const usedBy = async () =>
    Object.fromEntries(
      (await first.store.list({ accountName: account })).map((one) => [
        `${one.what} ${one.per} ${one.key ?? 'account'}`,
        one.used,
      ]),
    )
  const stop = () => Promise.all(gateways.map(({ limiter }) => limiter.stop()))
  return { gateways, first, second, key, text, call, budget, usedOf, usedBy, stop }
}

/** 64 callers, every other one at the second gateway. */
async function crowd(
  { gateways, call }: Awaited<ReturnType<typeof setUp>>,
  more: Pick<LimitedCall, 'answers'> = {},
) {
  const settled = await Promise.allSettled(
    Array.from({ length: 64 }, (_, n) => gateways[n % 2]?.limiter.admit({ ...call, ...more })),
  )
  const permits = settled.flatMap((one) =>
    one.status === 'fulfilled' && one.value?.kind === 'admitted' ? [one.value.permit] : [],
  )
  const refused = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
  return { permits, refused }
}

async function openCallsOf({ queries }: Database, accountId: string): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*) as count from budget_calls where account_id = ${accountId}::uuid and settled_at is null`.execute(
    queries,
  )
  return rows[0]?.count ?? 0
}

// A call reserves 40 tokens in and 60 out, 660,000 billionths, and uses 20 and 10, 150,000.
it.each([
  ['requests', 10, 10],
  ['tokens', 1_099, 300],
  ['money', 6_600_000 + 659_999, 1_500_000],
] as const)(
  'a budget of %s is exact for 64 parallel callers over two gateways',
  async (what, bound, usedAfter) => {
    const stage = await setUp()
    await stage.first.store.set({ ...stage.budget, what, bound })
    const { permits, refused } = await crowd(stage)
    expect([permits.length, refused.length]).toEqual([10, 54])
    const message = `The daily budget of ${what} of this account is too small for this call; it renews at 2027-05-16T00:00:00.000Z`
    for (const error of refused)
      expect(error).toMatchObject({ code: 'insufficient_quota', status: 429, message })
    for (const permit of permits) permit.settle(30, undefined, 20)
    for (const permit of permits) permit.settle(1_000)
    await stage.stop()
    expect(await stage.usedOf()).toEqual([usedAfter])
  },
)

// The prompt has 40 tokens. The longest answer of the model has 5,000.
it.each([
  ['tokens', { count: 1, tokensMax: 60 }, 100],
  ['tokens', { count: 1, tokensMax: null }, 5_040],
  ['tokens', { count: 2, tokensMax: null }, 10_040],
  ['money', { count: 1, tokensMax: null }, 40 * 3_000 + 5_000 * 9_000],
] as const)(
  'calls at once at two gateways never pass a budget of %s, however long their answers %j are',
  async (what, answers, most) => {
    const stage = await setUp()
    await stage.first.store.set({ ...stage.budget, what, bound: 4 * most - 1 })
    const { permits, refused } = await crowd(stage, { answers })
    expect([permits.length, refused.length]).toEqual([3, 61])
    const hint = 'The call reserved the longest answer: bound it, as with max_tokens'
    expect(refused[0].message.endsWith(hint)).toBe(answers.tokensMax === null)
    for (const permit of permits)
      permit.settle(40 + answers.count * (answers.tokensMax ?? 5_000), undefined, 40)
    await stage.stop()
    expect(await stage.usedOf()).toEqual([3 * most])
  },
)

it('a call of a hidden model reserves the dearest price, and the longest answer of all models', async () => {
  const { first, call, budget, usedBy, stop } = await setUp()
  await first.store.set({ ...budget, what: 'tokens', bound: 1_000_000_000 })
  await first.store.set({ ...budget, what: 'money', bound: 1_000_000_000_000 })
  const limiter = withBudgets({
    limiter: {
      ...first.limiter,
      stop: async () => undefined,
      admit: (asked) => first.limiter.admit({ ...asked, isBudgeted: false }),
    },
    store: first.store,
    prices: () => [...PRICES, { ...FREE, models: ['*'], answerTokensMax: 10 }],
    lease: { id: () => first.processId },
    log: { warn: () => undefined, error: () => undefined },
  })
  const answers = { count: 1, tokensMax: null }
  await limiter.admit({ ...call, model: '', estimate: 1, promptTokens: 40, answers })
  expect(await usedBy()).toEqual({
    'tokens day account': 40 + ANSWER_TOKENS_MAX,
    'money day account': 40 * 3_000 + ANSWER_TOKENS_MAX * 9_000,
  })
  await limiter.stop()
  await stop()
})

it('a key that is looked up says whether a budget bounds it', async () => {
  const { first, text, budget, stop } = await setUp()
  const keys = () => keysIn(first.database)
  expect(await keys().authenticate(text)).toMatchObject({ isBudgeted: false })
  await first.store.set({ ...budget, what: 'requests', bound: 3 })
  expect(await keys().authenticate(text)).toMatchObject({ isBudgeted: true })
  await first.store.set({ ...budget, what: 'requests', bound: null })
  expect(await keys().authenticate(text)).toMatchObject({ isBudgeted: false })
  expect(await first.store.set({ ...budget, account: 'nobody', what: 'tokens', bound: 1 })).toBe(
    'unknown_account',
  )
  await stop()
})

it('a budget of a key bounds it beside that of its account, and renews with its period', async () => {
  const { first, key, call, budget, stop } = await setUp()
  await first.store.set({ ...budget, what: 'requests', bound: 3 })
  const ofKey = { account: null, key: key.id, what: 'requests', per: 'month', bound: 1 } as const
  expect(await first.store.set(ofKey)).toBe('set')
  await first.limiter.admit(call)
  await expect(first.limiter.admit(call)).rejects.toThrow(
    'monthly budget of requests of this API key is too small for this call; it renews at 2027-06-01T00:00:00.000Z',
  )
  clockSeconds = Date.UTC(2027, 5, 1) / 1000
  await expect(first.limiter.admit(call)).resolves.toMatchObject({ kind: 'admitted' })
  await stop()
})

it('a budget of money refuses a model without a price', async () => {
  const { first, call, budget, stop } = await setUp()
  await first.store.set({ ...budget, what: 'money', bound: 1_000_000_000 })
  await expect(first.limiter.admit({ ...call, model: 'other' })).rejects.toThrow('no price')
  await stop()
})

it('a budget gets back all of a call that the limiter refuses', async () => {
  const { first, call, budget, usedOf, stop } = await setUp()
  await first.store.set({ ...budget, what: 'requests', bound: 5 })
  const limiter = withBudgets({
    limiter: {
      ...first.limiter,
      stop: async () => undefined,
      admit: () => Promise.reject(new Error('away')),
    },
    store: first.store,
    prices: () => PRICES,
    lease: { id: () => first.processId },
    log: { warn: () => undefined, error: () => undefined },
  })
  await expect(limiter.admit(call)).rejects.toThrow('away')
  await limiter.stop()
  expect(await usedOf()).toEqual([0])
  await stop()
})

it('a budget gets back a reservation whose answer was lost, while its gateway lives', async () => {
  const { first, call, budget, usedOf, stop } = await setUp()
  await first.store.set({ ...budget, what: 'requests', bound: 5 })
  await first.store.set({ ...budget, what: 'tokens', bound: 500 })
  const limiter = withBudgets({
    limiter: { ...first.limiter, stop: async () => undefined },
    store: {
      ...first.store,
      async reserve(call) {
        await first.store.reserve(call)
        throw new Error('connection broke')
      },
    },
    prices: () => PRICES,
    lease: { id: () => first.processId },
    log: { warn: () => undefined, error: () => undefined },
  })
  await expect(limiter.admit(call)).rejects.toThrow('connection broke')
  await expect.poll(usedOf).toEqual([0, 0])
  await limiter.stop()
  await stop()
})

it('a reservation that arrives after its settlement reserves nothing', async () => {
  const { first, call, budget, usedOf, stop } = await setUp()
  await first.store.set({ ...budget, what: 'tokens', bound: 500 })
  const { accountId, keyId } = call
  const { processId, store } = first
  const callId = crypto.randomUUID()
  await store.settle(processId, [{ callId, accountId, keyId, requests: 0, tokens: 0, money: 0 }])
  await expect(
    store.reserve({ callId, processId, accountId, keyId, tokens: 100, money: null }),
  ).rejects.toThrow('duplicate key')
  expect(await usedOf()).toEqual([0])
  await stop()
})

// Each of 5 calls reserves 40 tokens in and 60 out, and uses 5 and 5.
it.each([
  ['requests', 5, 5],
  ['tokens', 500, 50],
  ['money', 5 * 660_000, 5 * 60_000],
] as const)(
  'a new budget of %s of an account or a key begins with the reservations of running calls, and keeps their use',
  async (what, reserved, used) => {
    const { first, second, key, call, budget, usedBy, stop } = await setUp()
    await first.store.set({ ...budget, per: 'month', what: 'requests', bound: 1_000 })
    const decisions = await Promise.all(
      [1, 2, 3, 4, 5].map((n) => (n % 2 === 0 ? first : second).limiter.admit(call)),
    )
    await first.store.set({ ...budget, per: 'total', what, bound: 100_000_000 })
    await first.store.set({ ...budget, per: 'total', what, bound: 200_000_000 })
    await first.store.set({ ...budget, account: null, key: key.id, what, bound: 100_000_000 })
    const usedOf = (amount: number) => ({
      'requests month account': 5,
      [`${what} total account`]: amount,
      [`${what} day ${key.id}`]: amount,
    })
    expect(await usedBy()).toEqual(usedOf(reserved))
    for (const decision of decisions)
      if (decision.kind === 'admitted') decision.permit.settle(10, undefined, 5)
    await stop()
    expect(await usedBy()).toEqual(usedOf(used))
  },
)

it('a new budget of a key has no reservations of other keys and of earlier days', async () => {
  const { first, call, budget, usedBy, stop } = await setUp()
  await first.store.set({ ...budget, per: 'month', what: 'requests', bound: 1_000 })
  const early = await first.limiter.admit(call)
  const other = await keysIn(first.database).create({ accountName: budget.account, name: 'o' })
  const ofOther = { account: null, key: other.key.id, what: 'tokens', per: 'day' } as const
  await first.store.set({ ...ofOther, bound: 1_000 })
  clockSeconds += 86_400
  await first.store.set({ ...budget, what: 'tokens', bound: 1_000 })
  const used = {
    'requests month account': 1,
    'tokens day account': 0,
    [`tokens day ${other.key.id}`]: 0,
  }
  expect(await usedBy()).toEqual(used)
  if (early.kind === 'admitted') early.permit.settle(10)
  await expect.poll(() => openCallsOf(first.database, call.accountId)).toBe(0)
  expect(await usedBy()).toEqual(used)
  await stop()
})

it('a budget that is removed and set again while calls begin and end has their use in the end', async () => {
  const { gateways, first, call, budget, usedBy, stop } = await setUp()
  const tokens = { ...budget, what: 'tokens', per: 'total' } as const
  await first.store.set({ ...budget, per: 'total', what: 'requests', bound: 1_000 })
  let isDone = false
  const { accountId, keyId } = call
  const reserve = ({ processId, store }: typeof first, callId: string, tokens: number) =>
    store.reserve({ callId, processId, accountId, keyId, tokens, money: null })
  await reserve(first, crypto.randomUUID(), 5_000)
  const calls = Array.from({ length: 16 }, async (_, n) => {
    while (!isDone) {
      const gateway = gateways[n % 2] ?? first
      const callId = crypto.randomUUID()
      await reserve(gateway, callId, 100)
      const use = { callId, accountId, keyId, requests: 1, tokens: 0, money: 0 } as const
      await gateway.store.settle(gateway.processId, [use])
    }
  })
  for (const n of Array.from({ length: 10 }).keys()) {
    // Without a budget, calls hold no row that the next line could wait for.
    if (n % 2 === 0)
      await first.store.set({ ...budget, per: 'total', what: 'requests', bound: null })
    await first.store.set({ ...tokens, bound: null })
    await first.store.set({ ...tokens, bound: 1_000_000 })
    await first.store.set({ ...budget, per: 'total', what: 'requests', bound: 1_000_000 })
  }
  isDone = true
  await Promise.all(calls)
  expect(await usedBy()).toMatchObject({ 'tokens total account': 5_000 })
  await stop()
})

it('a budget gets back what a dead gateway reserved, but for the request', async () => {
  const { first, second, call, budget, usedOf, stop } = await setUp()
  await first.store.set({ ...budget, what: 'requests', bound: 5 })
  await first.store.set({ ...budget, what: 'tokens', bound: 500 })
  await second.limiter.admit(call)
  await first.limiter.admit(call)
  expect(await usedOf()).toEqual([2, 200])
  await createProcessesStore(first.database, clock).leave(second.processId)
  await first.store.expire()
  await first.store.expire()
  expect(await usedOf()).toEqual([2, 100])
  await stop()
})

it('a budget is settled once, however often a settlement is sent', async () => {
  const { first, call, budget, usedOf, stop } = await setUp()
  await first.store.set({ ...budget, what: 'tokens', bound: 500 })
  const { accountId, keyId } = call
  const { processId, store } = first
  const callId = crypto.randomUUID()
  await store.reserve({ callId, processId, accountId, keyId, tokens: 100, money: null })
  const use = { callId, accountId, keyId, requests: 1, tokens: 7, money: 0 } as const
  for (const _ of [1, 2, 3]) await store.settle(processId, [use])
  expect(await usedOf()).toEqual([7])
  await stop()
})
