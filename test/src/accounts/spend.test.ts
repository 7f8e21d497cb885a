import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { withBudgets } from '#src/accounts/budgets.ts'
import { createBudgetsStore } from '#src/accounts/budgets-store.ts'
import { createRateLimiter, type Permit } from '#src/accounts/limits/limiter.ts'
import { UNLIMITED_TIERS } from '#src/accounts/limits/tiers.ts'
import { keysIn } from '#src/accounts/open-keys.ts'
import { NANO, type Prices } from '#src/accounts/prices.ts'
import { createRateLimitsStore } from '#src/accounts/rate-limits-store.ts'
import { createUsageStore } from '#src/accounts/usage-store.ts'
import { createLogger } from '#src/observability/logger.ts'
import { createProcessesStore } from '#src/storage/processes-store.ts'
import { useConnections } from '../../support/databases.ts'

/** 15 May 2027, 12:00 UTC. */
const NOON = Date.UTC(2027, 4, 15, 12) / 1000
const LEASE_SECONDS = 90 * 86_400
const log = createLogger({ level: 'silent', destination: process.stderr })

const databases = await useConnections(2)

const price = (
  models: string[],
  input: bigint,
  output: bigint,
  fixed: Partial<Prices[number]>,
) => ({
  models,
  perMillionInputTokens: input,
  perMillionOutputTokens: output,
  perRequest: 0n,
  perImage: 0n,
  ...fixed,
})
/** Prices whose roundings would show; the second list is what a reload brings. */
const BEFORE: Prices = [
  price(['odd'], 1_234_567n, 7_654_321n, { perRequest: 3n }),
  price(['picture'], 0n, 0n, { perImage: 40_000_000n }),
  price(['*'], 3n * NANO, 9n * NANO, {}),
]
const AFTER: Prices = [price(['*'], 5n * NANO, 1n, { perRequest: 1n })]

/** Numbers that look random and are the same in every run. */
function createRandom(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

/** How calls end: whole, cut, failed, encrypted (its model is known at the end), an image. */
function settle(permit: Permit, random: (below: number) => number): void {
  const [prompt, answer] = [random(5_000), random(5_000)]
  const ends = [
    () => permit.settle(prompt + answer, undefined, prompt),
    () => permit.settle(prompt + answer),
    () => permit.settle(0),
    () => permit.settle(prompt + answer, 'odd', prompt),
    () => permit.settle(0, undefined, 0, random(5)),
    () => permit.settle(prompt, undefined, prompt + answer),
    () => permit.settle(5e9, undefined, 1),
  ]
  ends[random(20) === 0 ? 6 : random(6)]?.()
  // The second settlement of a call counts nowhere.
  permit.settle(1_000_000)
}

it('reports add up to what budgets have used, of every call however it ended', async () => {
  const clock = () => NOON
  let prices = BEFORE
  const gateways = await Promise.all(
    databases.map(async (database) => {
      const processId = crypto.randomUUID()
      await createProcessesStore(database, clock).enter(processId, LEASE_SECONDS)
      const lease = { id: () => processId }
      const limiter = createRateLimiter({
        store: createRateLimitsStore(database, clock),
        tiers: () => UNLIMITED_TIERS,
        prices: () => prices,
        lease,
        leaseSeconds: LEASE_SECONDS,
        log,
      })
      const budgets = createBudgetsStore(database, clock)
      return withBudgets({ limiter, store: budgets, prices: () => prices, lease, log })
    }),
  )
  const [database] = databases
  if (database === undefined) throw new Error('expected a database')
  const random = createRandom(42)
  const account = `spender ${crypto.randomUUID()}`
  const apiKeys = keysIn(database)
  const made = [1, 2, 3].map((n) => apiKeys.create({ accountName: account, name: `k${n}` }))
  const keys = (await Promise.all(made)).map(({ key }) => key)
  const budgets = createBudgetsStore(database, clock)
  const whats = ['requests', 'tokens', 'money'] as const
  for (const key of [null, ...keys.map(({ id }) => id)])
    for (const what of whats)
      await budgets.set({ account, key, what, per: 'month', bound: Number.MAX_SAFE_INTEGER })

  const permits: Permit[] = []
  for (let call = 0; call < 300; call++) {
    if (call === 150) prices = AFTER
    const key = keys[random(3)]
    const model = ['odd', 'picture', 'gpt-4o', ''][random(4)] ?? ''
    const known = random(2) === 0 ? {} : { promptTokens: random(100) }
    const decision = await gateways[call % 2]?.admit({
      accountId: key?.accountId ?? '',
      keyId: key?.id ?? '',
      isBudgeted: true,
      tier: null,
      kind: 'chat',
      model,
      estimate: random(5_000),
      images: random(3),
      ...known,
    })
    if (decision?.kind !== 'admitted') throw new Error('expected every call to be admitted')
    permits.push(decision.permit)
  }
  for (const permit of permits.toReversed()) settle(permit, random)
  await Promise.all(gateways.map((gateway) => gateway.stop()))

  const usage = createUsageStore(database, clock)
  const report = async (
    per: 'day' | 'month' | 'total',
    by: readonly ('account' | 'key' | 'model')[],
  ) => {
    const range = { from: NOON - 86_400, until: NOON + 86_400 }
    const rows = await usage.report({ account: { name: account }, key: null, ...range, per, by })
    if (typeof rows === 'string') throw new Error(rows)
    return rows
  }
  const used = new Map(
    (await budgets.list({ accountName: account, keyId: null, after: null, limit: 100 })).map(
      (budget) => [`${budget.key} ${budget.what}`, String(budget.used)],
    ),
  )
  expect(used.get('null requests')).toBe('300')
  for (const row of [...(await report('month', ['account'])), ...(await report('day', ['key']))]) {
    expect(whats.map((what) => String(row[what]))).toEqual(
      whats.map((what) => used.get(`${row.key} ${what}`)),
    )
    expect(row.prompt_tokens + row.completion_tokens + row.unsplit_tokens).toBe(row.tokens)
    expect(row.unpriced_requests).toBe(0)
  }
  const models = await report('total', ['key', 'model'])
  expect(models).toHaveLength(keys.length * 4)
  const sum = models.reduce((total, { money }) => total + BigInt(money), 0n)
  expect(String(sum)).toBe(used.get('null money'))
  const left = await sql`select from budget_calls where settled_at is null`.execute(
    database.queries,
  )
  expect(left.rows).toHaveLength(0)
})

it('a call is settled at the prices it began with, whatever was read again meanwhile', async () => {
  let prices = BEFORE
  const [database] = databases
  if (database === undefined) throw new Error('expected a database')
  const limiter = createRateLimiter({
    store: createRateLimitsStore(database),
    tiers: () => UNLIMITED_TIERS,
    prices: () => prices,
    lease: { id: () => crypto.randomUUID() },
    leaseSeconds: LEASE_SECONDS,
    log,
  })
  const call = { accountId: crypto.randomUUID(), keyId: 'k', tier: null, kind: 'chat' } as const
  const admit = () => limiter.admit({ ...call, model: 'm', estimate: 0 })
  const first = await admit()
  prices = AFTER
  const second = await admit()
  const used = [first, second].map((it) =>
    it.kind === 'admitted' ? it.permit.settle(10, undefined, 6)?.money : null,
  )
  expect(used).toEqual([6 * 3_000 + 4 * 9_000, 6 * 5_000 + 1 + 1])
  await limiter.stop()
})
