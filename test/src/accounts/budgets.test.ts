import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { withBudgets } from '../../../src/accounts/budgets.ts'
import { createBudgetsStore } from '../../../src/accounts/budgets-store.ts'
import { createRateLimiter } from '../../../src/accounts/limits/limiter.ts'
import { UNLIMITED_TIERS } from '../../../src/accounts/limits/tiers.ts'
import { keysIn } from '../../../src/accounts/open-keys.ts'
import { NANO, parseMoney, priceOf } from '../../../src/accounts/prices.ts'
import { createRateLimitsStore } from '../../../src/accounts/rate-limits-store.ts'
import { createLogger } from '../../../src/observability/logger.ts'
import { type Database, openDatabase } from '../../../src/storage/database.ts'
import { createProcessesStore } from '../../../src/storage/processes-store.ts'
import { createTestDatabase } from '../../support/test-database.ts'

const PRICES = [
  {
    models: ['m'],
    perMillionInputTokens: 3n * NANO,
    perMillionOutputTokens: 9n * NANO,
    perRequest: 0n,
    perImage: 0n,
  },
]
/** In the middle of a day and a month, UTC. */
const NOON = Date.UTC(2027, 4, 15, 12) / 1000

/** Two gateways are two pools of connections to one database, each a process of its own. */
const databases: Database[] = []
let clockSeconds = NOON
const clock = () => clockSeconds
beforeAll(async () => {
  const url = await createTestDatabase()
  for (const _ of [1, 2]) databases.push(await openDatabase({ url }))
})
afterAll(() => Promise.all(databases.map((database) => database.close())))

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
  const stop = () => Promise.all(gateways.map(({ limiter }) => limiter.stop()))
  return { gateways, first, second, key, text, call, budget, usedOf, stop }
}

/** 64 callers, every other one at the second gateway. */
async function crowd({ gateways, call }: Awaited<ReturnType<typeof setUp>>) {
  const settled = await Promise.allSettled(
    Array.from({ length: 64 }, (_, n) => gateways[n % 2]?.limiter.admit(call)),
  )
  const permits = settled.flatMap((one) =>
    one.status === 'fulfilled' && one.value?.kind === 'admitted' ? [one.value.permit] : [],
  )
  const refused = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
  return { permits, refused }
}

describe('budgets of 64 parallel callers over two gateways', () => {
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
})

describe('a budget', () => {
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
})

describe('money', () => {
  it.each([
    ['0', 0n],
    ['2.50', 2_500_000_000n],
    ['0.000000001', 1n],
    ['9999999.999999999', 9_999_999_999_999_999n],
    ['1e3', null],
    ['-1', null],
    ['.5', null],
    ['0.0000000001', null],
    ['10000000', null],
  ])('the amount of money %s is read exactly or refused', (text, expected) => {
    expect(parseMoney(text)).toBe(expected)
  })

  it('an amount of money is rounded up to billionths, without floats', () => {
    const price = { models: ['*'], perMillionOutputTokens: 0n, perRequest: 0n, perImage: 5n }
    const prices = [{ ...price, perMillionInputTokens: 100_000_001n }]
    expect(priceOf(prices, { model: 'x', input: 1, output: 0 })).toBe(101)
    expect(priceOf(prices, { model: 'x', input: 3_000_000, output: 0 })).toBe(300_000_003)
    expect(priceOf(prices, { model: 'x', input: 1, output: 0, images: 3 })).toBe(116)
    expect(priceOf([], { model: 'x', input: 1, output: 0 })).toBeNull()
  })
})
