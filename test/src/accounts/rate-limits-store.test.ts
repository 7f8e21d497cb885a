import { sql } from 'kysely'
import { expect, it } from 'vitest'
import {
  createRateLimitsStore,
  type LimitBucket,
  type RateLimits,
  type Settlement,
} from '#src/accounts/rate-limits-store.ts'
import { createProcessesStore } from '#src/storage/processes-store.ts'
import { useDatabase } from '../../support/databases.ts'

const NONE: RateLimits = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  requestsPerDay: null,
  tokensPerDay: null,
}
const LEASE_SECONDS = 15
/** 2026-11-21 00:00:00 UTC: both windows begin. */
const MIDNIGHT = 1_795_219_200

const database = await useDatabase()

/** Stores with a clock of their own and one account and process that no other test has. */
function setUp() {
  const clock = { at: MIDNIGHT }
  const now = () => clock.at
  const store = createRateLimitsStore(database, now)
  const processes = createProcessesStore(database, now)
  const accountId = crypto.randomUUID()
  const processId = crypto.randomUUID()
  let batch = 0
  const bucketOf = (
    limits: Partial<RateLimits>,
    estimates: readonly number[],
    group = 'all',
  ): LimitBucket => ({
    accountId,
    group,
    limits: { ...NONE, ...limits },
    estimates,
    settlements: [],
  })
  const take = async (limits: Partial<RateLimits>, ...estimates: number[]) => {
    const buckets = [bucketOf(limits, estimates)]
    const { outcomes } = await store.step({
      processId,
      leaseSeconds: LEASE_SECONDS,
      batch: null,
      usages: [],
      buckets,
    })
    return outcomes[0]?.map(({ isAdmitted }) => isAdmitted)
  }
  const settle = async (settlement: Partial<Settlement>, number?: number) => {
    batch = number ?? batch + 1
    const at = { minute: Math.floor(clock.at / 60), day: Math.floor(clock.at / 86_400) }
    const whole = { processId, ...at, reserved: 0, used: 0, excess: 0, ...settlement }
    const buckets = [{ ...bucketOf({}, []), settlements: [whole] }]
    await store.step({ processId, leaseSeconds: LEASE_SECONDS, batch, buckets, usages: [] })
  }
  const used = async (group = 'all') => (await store.read(accountId)).used.get(group)
  return { clock, store, processes, accountId, processId, bucketOf, take, settle, used }
}

it('a window admits as many calls as there is room for, and counts no other', async () => {
  const { take, used } = setUp()
  expect(await take({ requestsPerMinute: 3 }, 0, 0)).toEqual([true, true])
  expect(await take({ requestsPerMinute: 3 }, 0, 0, 0)).toEqual([true, false, false])
  expect(await used()).toMatchObject({ minuteRequests: 3, dayRequests: 3 })
})

it('a small call is let through behind a call that does not fit', async () => {
  const { take, used } = setUp()
  expect(await take({ tokensPerMinute: 100 }, 60, 50, 40, 1)).toEqual([true, false, true, false])
  expect(await used()).toMatchObject({ minuteRequests: 2, minuteTokens: 100, dayTokens: 100 })
})

it.each([
  [{ requestsPerMinute: 1 }, 60],
  [{ tokensPerMinute: 10 }, 60],
  [{ requestsPerDay: 1 }, 86_400],
  [{ tokensPerDay: 10 }, 86_400],
])('a call with the limit %j is refused until exactly the window ends', async (limits, seconds) => {
  const { take, clock } = setUp()
  expect(await take(limits, 10)).toEqual([true])
  clock.at = MIDNIGHT + seconds - 1
  expect(await take(limits, 10)).toEqual([false])
  clock.at = MIDNIGHT + seconds
  expect(await take(limits, 10)).toEqual([true])
})

it('a window is never opened again, though a clock runs behind', async () => {
  const { take, clock, used } = setUp()
  clock.at = MIDNIGHT + 60
  await take({ requestsPerMinute: 1 }, 0)
  clock.at = MIDNIGHT + 59
  expect(await take({ requestsPerMinute: 1 }, 0)).toEqual([false])
  expect(await used()).toMatchObject({ minute: (MIDNIGHT + 60) / 60, minuteRequests: 1 })
})

it('accounts and groups are kept apart, and outcomes come in the order that was asked', async () => {
  const { store, processId, bucketOf } = setUp()
  const other = setUp()
  const buckets = [
    bucketOf({ requestsPerMinute: 1 }, [0, 0], 'z'),
    other.bucketOf({ requestsPerMinute: 2 }, [0, 0, 0], 'b'),
    bucketOf({ requestsPerMinute: 3 }, [0, 0], 'a'),
  ]
  const { outcomes } = await store.step({
    processId,
    leaseSeconds: LEASE_SECONDS,
    batch: null,
    usages: [],
    buckets,
  })
  expect(outcomes.map((list) => list.map(({ isAdmitted }) => isAdmitted))).toEqual([
    [true, false],
    [true, true, false],
    [true, true],
  ])
  expect(outcomes[1]?.map((outcome) => outcome.used.minuteRequests)).toEqual([1, 2, 2])
})

it('a reservation is settled down and up', async () => {
  const { take, settle, used } = setUp()
  await take({ tokensPerMinute: 1000 }, 100, 200)
  await settle({ reserved: 100, used: 30 })
  expect(await used()).toMatchObject({ minuteTokens: 230, dayTokens: 230, minuteRequests: 2 })
  await settle({ reserved: 200, used: 900, excess: 700 })
  expect(await used()).toMatchObject({ minuteTokens: 930, dayTokens: 930 })
})

it('what a call uses beyond its reservation counts in the next minute, which gets nothing back', async () => {
  const { take, settle, used, clock } = setUp()
  await take({ tokensPerMinute: 1000 }, 100, 200)
  const then = { minute: MIDNIGHT / 60, day: MIDNIGHT / 86_400 }
  clock.at = MIDNIGHT + 60
  await settle({ ...then, reserved: 100, used: 250, excess: 150 })
  await settle({ ...then, reserved: 200, used: 50 })
  expect(await used()).toMatchObject({ minuteTokens: 150, dayTokens: 300 })
})

it('a batch of settlements is counted once, however often it is sent', async () => {
  const { take, settle, used } = setUp()
  await take({ tokensPerMinute: 1000 }, 100)
  await settle({ reserved: 100, used: 40 }, 1)
  await settle({ reserved: 100, used: 40 }, 1)
  expect(await used()).toMatchObject({ minuteTokens: 40, dayTokens: 40 })
})

it('a reservation of a dead process is given back once its lease is over', async () => {
  const { take, used, clock, processes, processId } = setUp()
  await processes.enter(processId, LEASE_SECONDS)
  await take({ tokensPerMinute: 1000 }, 100)
  clock.at = MIDNIGHT + LEASE_SECONDS - 1
  await processes.expire()
  expect(await used()).toMatchObject({ minuteTokens: 100 })
  clock.at = MIDNIGHT + LEASE_SECONDS
  await processes.expire()
  expect(await used()).toMatchObject({ minuteTokens: 0, dayTokens: 0, minuteRequests: 1 })
})

it('a reservation of a minute that is over is given back to the day alone', async () => {
  const { take, used, clock, processes, processId } = setUp()
  await processes.enter(processId, 70)
  await take({ tokensPerMinute: 1000 }, 100)
  clock.at = MIDNIGHT + 60
  await take({ tokensPerMinute: 1000 }, 30)
  clock.at = MIDNIGHT + 75
  await processes.expire()
  expect(await used()).toMatchObject({ minuteTokens: 0, dayTokens: 0, dayRequests: 2 })
})

it('a call whose reservation was given back before it was over counts with all that it used', async () => {
  const { take, settle, used, clock, processes, processId } = setUp()
  await processes.enter(processId, LEASE_SECONDS)
  await take({ tokensPerMinute: 1000 }, 100)
  clock.at = MIDNIGHT + LEASE_SECONDS
  await processes.expire()
  await settle({ reserved: 100, used: 80 })
  expect(await used()).toMatchObject({ minuteTokens: 80, dayTokens: 80 })
})

it('a reservation that a process makes after its lease ended is given back', async () => {
  const { take, used, clock, processes, processId } = setUp()
  await processes.enter(processId, LEASE_SECONDS)
  clock.at = MIDNIGHT + LEASE_SECONDS
  await processes.expire()
  await take({ tokensPerMinute: 1000 }, 100)
  await processes.expire()
  expect(await used()).toMatchObject({ minuteTokens: 0, dayTokens: 0 })
})

it('a dead process is counted once, and its row is deleted after ten minutes', async () => {
  const { clock, processes, processId } = setUp()
  const isListed = async () => {
    const { rows } = await sql`
        select from gateway_processes where id = ${processId}`.execute(database.queries)
    return rows.length === 1
  }
  clock.at = MIDNIGHT + 1_000
  await processes.expire()
  await processes.enter(processId, LEASE_SECONDS)
  await processes.leave(processId)
  expect(await processes.expire()).toBe(1)
  clock.at += 600
  expect(await processes.expire()).toBe(0)
  expect(await isListed()).toBe(true)
  clock.at += 1
  expect(await processes.expire()).toBe(0)
  expect(await isListed()).toBe(false)
})

it('a process that was taken for dead is told so when it renews its lease', async () => {
  const { clock, processes, processId } = setUp()
  await processes.enter(processId, LEASE_SECONDS)
  clock.at += LEASE_SECONDS - 1
  expect(await processes.renew(processId, LEASE_SECONDS)).toBe(true)
  clock.at += LEASE_SECONDS
  expect(await processes.renew(processId, LEASE_SECONDS)).toBe(false)
})

it('the rate limits store runs on the time of the database when no clock is given', async () => {
  const { at } = await createRateLimitsStore(database).read(crypto.randomUUID())
  expect(Math.abs(at - Date.now() / 1000)).toBeLessThan(5)
})
