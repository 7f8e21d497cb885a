import fc from 'fast-check'
import { sql } from 'kysely'
import { expect, it } from 'vitest'
import { createRateLimiter, type Decision, type RateLimiter } from '#src/accounts/limits/limiter.ts'
import { assembleTiers, type Tiers } from '#src/accounts/limits/tiers.ts'
import {
  createRateLimitsStore,
  type RateLimits,
  type RateLimitsStore,
} from '#src/accounts/rate-limits-store.ts'
import { createLogger } from '#src/observability/logger.ts'
import type { Database } from '#src/storage/database.ts'
import { createProcessesStore } from '#src/storage/processes-store.ts'
import { useConnections } from '../../../support/databases.ts'

const LEASE_SECONDS = 15
/** 2026-11-21 00:00:00 UTC: both windows begin. */
const MIDNIGHT = 1_795_219_200
const CALLERS = 64
const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
const NONE: RateLimits = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  requestsPerDay: null,
  tokensPerDay: null,
}

function tiersOf(limits: Partial<RateLimits>): Tiers {
  const group = {
    name: 'all',
    calls: ['verified', 'chat'] as const,
    models: ['*'],
    limits: { ...NONE, ...limits },
    pricePerMillionTokens: null,
  }
  return assembleTiers('only', [{ name: 'only', description: '', groups: [group] }])
}

const isAdmitted = (decision: Decision) => decision.kind === 'admitted'
function settle(decision: Decision | undefined, tokens: number): void {
  if (decision?.kind === 'admitted') decision.permit.settle(tokens)
}

/** The second is another gateway's. */
const [database = expect.unreachable(), other = expect.unreachable()] = await useConnections(2)

/** Two gateways with the same limits, and an account of which nothing is counted yet. */
function setUp(
  limits: Partial<RateLimits>,
  wrap: (store: RateLimitsStore) => RateLimitsStore = (store) => store,
) {
  const clock = { at: MIDNIGHT }
  const tiers = () => tiersOf(limits)
  const accountId = crypto.randomUUID()
  const open = (on: Database) => {
    const processId = crypto.randomUUID()
    const store = wrap(createRateLimitsStore(on, () => clock.at))
    const limiter = createRateLimiter({
      store,
      tiers,
      prices: () => [],
      lease: { id: () => processId },
      leaseSeconds: LEASE_SECONDS,
      log,
    })
    return { limiter, processId }
  }
  const first = open(database)
  const second = open(other)
  const processes = createProcessesStore(database, () => clock.at)
  const ask = (limiter: RateLimiter, estimate = 0) =>
    limiter.admit({ accountId, tier: null, kind: 'verified', model: 'gpt-4o', estimate })
  const report = async (limiter = first.limiter) =>
    (await limiter.report({ accountId, tier: null })).usages[0]
  return { clock, accountId, first, second, processes, ask, report }
}

it('the rate limiter never lets one request too many through, with 64 parallel callers of two gateways', async () => {
  for (const limit of [1, 10, 63]) {
    const { first, second, ask, report } = setUp({ requestsPerMinute: limit })
    const gateways = [first.limiter, second.limiter]
    const decisions = await Promise.all(
      Array.from({ length: CALLERS }, async (_, caller) => {
        const limiter = gateways[caller % 2] ?? first.limiter
        const own: Decision[] = []
        for (let call = 0; call < 3; call++) own.push(await ask(limiter))
        return own
      }),
    )
    expect(decisions.flat().filter(isAdmitted)).toHaveLength(limit)
    expect(await report()).toMatchObject({ requests_used_day: limit })
  }
})

it('the rate limiter counts every token in the end, whatever was estimated, in whichever order calls end', async () => {
  const call = fc.record({
    estimate: fc.integer({ min: 0, max: 100 }),
    used: fc.integer({ min: 0, max: 200 }),
    isSecond: fc.boolean(),
    isSettledTwice: fc.boolean(),
    pauseSeconds: fc.constantFrom(0, 0, 0, 1, 59, 60, 3600),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(call, { minLength: 1, maxLength: 24 }), async (calls) => {
      const { clock, first, second, ask, report } = setUp({ tokensPerDay: 1_000_000 })
      const limiterOf = (isSecond: boolean) => (isSecond ? second.limiter : first.limiter)
      const decisions = await Promise.all(
        calls.map(({ isSecond, estimate }) => ask(limiterOf(isSecond), estimate)),
      )
      for (const [place, { used, isSettledTwice, pauseSeconds }] of calls.entries()) {
        settle(decisions[place], used)
        if (isSettledTwice) settle(decisions[place], used + 1)
        clock.at += pauseSeconds
        if (pauseSeconds > 0) await report(limiterOf(place % 2 === 0))
      }
      if (clock.at >= MIDNIGHT + 86_400) return
      await report(second.limiter)
      const total = calls.reduce((sum, { used }) => sum + used, 0)
      expect(await report()).toMatchObject({
        tokens_used_day: total,
        requests_used_day: calls.length,
      })
    }),
    { numRuns: 12 },
  )
})

it('calls that used less than they reserved lower no later minute, however many end in it', async () => {
  const { clock, first, ask, report } = setUp({ tokensPerMinute: 100, tokensPerDay: 1_000 })
  const early: Decision[] = []
  for (const estimate of [60, 40]) early.push(await ask(first.limiter, estimate))
  clock.at += 60
  for (const decision of early) {
    settle(decision, 10)
    await report()
  }
  expect(await report()).toMatchObject({ tokens_used_day: 20 })
  const late = await ask(first.limiter, 100)
  expect(late).toMatchObject({
    kind: 'admitted',
    permit: { quota: { tokens: { remaining: 0 } } },
  })
  expect((await ask(first.limiter, 1)).kind).toBe('refused')
  // In its own minute, a call gives back what it did not use, and no more.
  settle(late, 30)
  await report()
  expect((await ask(first.limiter, 71)).kind).toBe('refused')
  const exact = await ask(first.limiter, 70)
  clock.at += 60
  settle(exact, 90)
  await report()
  // What was used beyond the reservation counts in the next minute.
  expect((await ask(first.limiter, 81)).kind).toBe('refused')
  expect((await ask(first.limiter, 80)).kind).toBe('admitted')
})

it('the rate limiter gives back what a dead gateway had reserved', async () => {
  const { clock, first, second, processes, ask, report } = setUp({ tokensPerMinute: 100 })
  await processes.enter(first.processId, LEASE_SECONDS)
  await ask(first.limiter, 80)
  expect((await ask(second.limiter, 80)).kind).toBe('refused')
  clock.at += LEASE_SECONDS
  await processes.expire()
  expect((await ask(second.limiter, 80)).kind).toBe('admitted')
  expect(await report()).toMatchObject({ tokens_used_day: 80, requests_used_day: 2 })
})

it('the rate limiter loses no settlement while the database fails, and counts none twice', async () => {
  const failing = { before: false, after: false }
  const { first, ask, report } = setUp({ tokensPerDay: 1_000_000 }, (store) => ({
    ...store,
    async step(step) {
      if (failing.before) throw new Error('connection refused')
      const result = await store.step(step)
      if (failing.after) throw new Error('connection broke')
      return result
    },
  }))
  const decisions = await Promise.all(
    [10, 20, 30, 40].map((estimate) => ask(first.limiter, estimate)),
  )
  const useUp = (place: number) => settle(decisions[place], 100)
  useUp(0)
  failing.after = true
  await expect(report()).rejects.toThrow('connection broke')
  useUp(1)
  failing.before = true
  await expect(ask(first.limiter, 5)).rejects.toThrow('connection refused')
  useUp(2)
  failing.before = false
  await expect(ask(first.limiter, 5)).rejects.toThrow('connection broke')
  failing.after = false
  useUp(3)
  expect(await report()).toMatchObject({ tokens_used_day: 400, requests_used_day: 4 })
})

it('a batch whose answer was lost counts once, though the lease ended before it was sent again', async () => {
  let isAnswerLost = false
  const { clock, accountId, first, processes, ask, report } = setUp(
    { tokensPerDay: 1_000_000 },
    (store) => ({
      ...store,
      async step(step) {
        const result = await store.step(step)
        if (isAnswerLost) throw new Error('connection broke')
        return result
      },
    }),
  )
  await processes.enter(first.processId, LEASE_SECONDS)
  const decision = await ask(first.limiter, 100)
  isAnswerLost = true
  settle(decision, 40)
  await expect(report()).rejects.toThrow('connection broke')
  isAnswerLost = false
  for (const seconds of [LEASE_SECONDS, 600]) {
    clock.at += seconds
    await processes.expire()
  }
  expect(await report()).toMatchObject({ tokens_used_day: 40, requests_used_day: 1 })
  const { rows } = await sql`
      select requests, tokens from usage_hours where account_id = ${accountId}`.execute(
    database.queries,
  )
  expect(rows).toEqual([{ requests: 1, tokens: 40 }])
})

it('a report has all earlier calls, and does not wait for later calls', async () => {
  const later: Promise<Decision>[] = []
  const { first, ask, report } = setUp({ requestsPerDay: 10_000 }, (store) => ({
    ...store,
    step(step) {
      // In each step another call arrives, so there is always work.
      if (later.length < 100) later.push(ask(first.limiter))
      return store.step(step)
    },
  }))
  const earlier = Array.from({ length: 600 }, () => ask(first.limiter, 10))
  const { requests_used_day: requests = 0 } = (await report()) ?? {}
  expect(requests).toBeGreaterThanOrEqual(earlier.length)
  for (const decision of await Promise.all(earlier)) settle(decision, 10)
  expect(await report()).toMatchObject({ tokens_used_day: 10 * earlier.length })
  expect(later.length).toBeLessThan(100)
  await first.limiter.stop()
  expect(await report()).toMatchObject({ requests_used_day: earlier.length + 100 })
})

it('the rate limiter goes on counting for others, whatever the answers to one account claim to have used', async () => {
  const [one, two] = [setUp({ tokensPerDay: 100 }), setUp({ tokensPerDay: 100 })]
  const calls = await Promise.all(Array.from({ length: 1_100 }, () => one.ask(one.first.limiter)))
  for (const call of calls) settle(call, Number.MAX_SAFE_INTEGER)
  settle(await two.ask(one.first.limiter, 5), 7)
  expect(await one.report()).toMatchObject({ tokens_left_day: 0 })
  expect(isAdmitted(await two.ask(two.first.limiter, 1))).toBe(true)
})

it('the rate limiter counts calls that nothing limits without making them wait', async () => {
  let steps = 0
  const { first, ask, report } = setUp({}, (store) => ({
    ...store,
    step: (step) => {
      steps++
      return store.step(step)
    },
  }))
  const decisions = await Promise.all(
    Array.from({ length: CALLERS }, () => ask(first.limiter, 500)),
  )
  expect(steps).toBe(0)
  expect(
    decisions.every((decision) => decision.kind === 'admitted' && decision.permit.quota === null),
  ).toBe(true)
  for (const decision of decisions) settle(decision, 7)
  expect(await report()).toMatchObject({
    requests_used_day: CALLERS,
    tokens_used_day: 7 * CALLERS,
    max_requests_per_minute: null,
    requests_left_day: null,
  })
  expect(steps).toBe(1)
})

it('the rate limiter asks the database few times for many calls at once', async () => {
  let steps = 0
  const { first, ask } = setUp({ requestsPerMinute: 1000 }, (store) => ({
    ...store,
    step: (step) => {
      steps++
      return store.step(step)
    },
  }))
  await Promise.all(Array.from({ length: 500 }, () => ask(first.limiter)))
  expect(steps).toBeLessThanOrEqual(3)
})
