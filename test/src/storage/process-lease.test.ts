import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { createLogger } from '#src/observability/logger.ts'
import { createProcessLease } from '#src/storage/process-lease.ts'
import type { ProcessesStore } from '#src/storage/processes-store.ts'

const log = createLogger({ level: 'silent', destination: { write: () => undefined } })

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

/**
 * Processes in memory, whose database can be away, or take them for dead; the real store has tests
 * of its own.
 */
function setUp() {
  const state = { isAway: false, isDead: false, gate: Promise.resolve() }
  const asked: string[] = []
  const answer = async <Value>(what: string, value: Value) => {
    asked.push(what)
    await state.gate
    if (state.isAway) throw new Error('connection refused')
    return value
  }
  const processes: ProcessesStore = {
    enter: (id) => answer(`enter ${id}`, undefined),
    renew: (id) => answer(`renew ${id}`, !state.isDead),
    leave: (id) => answer(`leave ${id}`, undefined),
    leaveAll: () => answer('leave all', undefined),
    expire: () => answer('expire', 0),
  }
  let ids = 0
  const lost: string[] = []
  const replaced: string[] = []
  const open = (isAlone = false) => {
    const lease = createProcessLease({
      processes,
      makeId: () => `p${++ids}`,
      log,
      isAlone,
      leaseSeconds: 0.4,
      renewIntervalMs: 50,
      marginMs: 100,
    })
    lease.onLost(() => lost.push(lease.id()))
    lease.onReplaced(() => replaced.push(asked.at(-1) ?? ''))
    return lease
  }
  return { state, asked, lost, replaced, open }
}

it('a lease is held as long as it is renewed, and left in good order', async () => {
  const { asked, lost, open } = setUp()
  const lease = open()
  expect(lease.isHeld()).toBe(false)
  await lease.start()
  await vi.advanceTimersByTimeAsync(600)
  expect([lease.isHeld(), lease.id()]).toEqual([true, 'p1'])
  await lease.stop()
  expect(lost).toEqual([])
  expect(asked.slice(0, 4)).toEqual(['enter p1', 'expire', 'renew p1', 'expire'])
  expect(asked.slice(-2)).toEqual(['leave p1', 'expire'])
})

it('a lease counts as lost before others see it end, when the database is away', async () => {
  const { state, lost, open } = setUp()
  const lease = open()
  await lease.start()
  state.isAway = true
  await vi.advanceTimersByTimeAsync(200)
  expect(lease.isHeld()).toBe(true)
  await vi.advanceTimersByTimeAsync(200)
  expect(lease.isHeld()).toBe(false)
  expect(lost).toEqual(['p1'])
  state.isAway = false
  await vi.advanceTimersByTimeAsync(100)
  expect([lease.isHeld(), lease.id()]).toEqual([true, 'p1'])
  await lease.stop()
})

it('a lease is entered under another id when this process was taken for dead', async () => {
  const { state, lost, replaced, open } = setUp()
  const lease = open()
  await lease.start()
  state.isDead = true
  await vi.advanceTimersByTimeAsync(80)
  state.isDead = false
  expect(lost).toEqual(['p1'])
  expect([lease.isHeld(), lease.id()]).toEqual([true, 'p2'])
  expect(replaced).toEqual(['enter p2'])
  await lease.stop()
})

it('a lease that stops waits for its renewal, and leaves under the id that this gave it', async () => {
  const { state, asked, open } = setUp()
  const lease = open()
  await lease.start()
  const gate = Promise.withResolvers<void>()
  Object.assign(state, { isDead: true, gate: gate.promise })
  await vi.advanceTimersByTimeAsync(60)
  const stopped = lease.stop()
  await vi.advanceTimersByTimeAsync(60)
  expect(asked.at(-1)).toBe('renew p1')
  gate.resolve()
  await stopped
  expect(asked.slice(3)).toEqual(['enter p2', 'expire', 'leave p2', 'expire'])
  expect([lease.isHeld(), vi.getTimerCount()]).toEqual([false, 0])
})

it('a lease ends all others first where this process is alone', async () => {
  const { asked, open } = setUp()
  const lease = open(true)
  await lease.start()
  await lease.stop()
  expect(asked.slice(0, 2)).toEqual(['leave all', 'enter p1'])
})
