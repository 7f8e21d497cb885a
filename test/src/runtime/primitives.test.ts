import { describe, expect, it } from 'vitest'
import { backOffMs } from '#src/runtime/back-off.ts'
import { createFaultLog } from '#src/runtime/fault-log.ts'
import { createLoop, type LoopPause } from '#src/runtime/loop.ts'
import { LruMap } from '#src/runtime/lru-map.ts'
import { createSerialQueue } from '#src/runtime/serial-queue.ts'
import { singleFlight } from '#src/runtime/single-flight.ts'

describe('backOffMs', () => {
  const bounds = { minMs: 100, maxMs: 1_000 }

  it('backOffMs doubles its bound from the least to the greatest', () => {
    const pauses = [1, 2, 3, 4, 5, 6].map((failures) =>
      backOffMs(failures, bounds, { jitter: 'none' }),
    )
    expect(pauses).toEqual([100, 200, 400, 800, 1_000, 1_000])
  })

  it('backOffMs stays finite after a million failures', () => {
    expect(backOffMs(1_000_000, bounds, { jitter: 'half', random: () => 0 })).toBe(1_000)
  })

  it('backOffMs is at least half of its bound with half jitter', () => {
    expect(backOffMs(2, bounds, { jitter: 'half', random: () => 0 })).toBe(200)
    expect(backOffMs(2, bounds, { jitter: 'half', random: () => 0.999 })).toBeCloseTo(100.1)
  })

  it('backOffMs is never below a tenth of the least with full jitter', () => {
    expect(backOffMs(3, bounds, { jitter: 'full', random: () => 0 })).toBe(10)
    expect(backOffMs(3, bounds, { jitter: 'full', random: () => 0.5 })).toBe(200)
  })
})

describe('singleFlight', () => {
  it('singleFlight shares a run with calls that come meanwhile, and runs again afterwards', async () => {
    let runs = 0
    const ask = singleFlight(async () => ++runs)
    expect(await Promise.all([ask(), ask(), ask()])).toEqual([1, 1, 1])
    expect(await ask()).toBe(2)
  })

  it('singleFlight gives the error to all who shared the run, and forgets it', async () => {
    let runs = 0
    const ask = singleFlight((): Promise<number> => {
      if (++runs === 1) throw new Error('at once')
      return Promise.resolve(runs)
    })
    const outcomes = await Promise.allSettled([ask(), ask()])
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(await ask()).toBe(2)
  })
})

describe('createSerialQueue', () => {
  it('createSerialQueue starts a task when the one before has ended', async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const queue = createSerialQueue()
    const seen: string[] = []
    const first = queue.run(async () => {
      await promise
      seen.push('first')
    })
    const second = queue.run(async () => void seen.push('second'))
    await Promise.resolve()
    expect(seen).toEqual([])
    resolve()
    await Promise.all([first, second])
    expect(seen).toEqual(['first', 'second'])
  })

  it('createSerialQueue goes on after a task that failed, whose error its giver gets', async () => {
    const queue = createSerialQueue()
    const failing = queue.run(() => Promise.reject(new Error('no')))
    const next = queue.run(async () => 'yes')
    await expect(failing).rejects.toThrow('no')
    expect(await next).toBe('yes')
    await queue.idle()
  })
})

describe('LruMap', () => {
  it('LruMap forgets what was used longest ago', () => {
    const map = new LruMap<string, number>(2)
    map.set('a', 1)
    map.set('b', 2)
    expect(map.get('a')).toBe(1)
    map.set('c', 3)
    expect([...map]).toEqual([
      ['a', 1],
      ['c', 3],
    ])
    expect(map.get('b')).toBeUndefined()
    expect(map.delete('a')).toBe(true)
    expect(map.size).toBe(1)
  })

  it('LruMap makes a value once, and again when it was forgotten', () => {
    const map = new LruMap<string, number>(1)
    expect(map.getOrMake('a', () => 1)).toBe(1)
    expect(map.getOrMake('a', () => 2)).toBe(1)
    expect(map.getOrMake('b', () => 3)).toBe(3)
    expect(map.getOrMake('a', () => 4)).toBe(4)
  })
})

describe('createLoop', () => {
  /** A loop of rounds that each take no time; `rounds` counts them. */
  function startLoop(pause: number | LoopPause) {
    const seen = { rounds: 0 }
    const loop = createLoop(async () => {
      seen.rounds += 1
      return pause
    })
    loop.start()
    return { loop, seen }
  }
  const turn = (ms = 0) => new Promise((resolve) => setTimeout(resolve, ms))

  it('createLoop begins once, however often it is started', async () => {
    const { loop, seen } = startLoop(60_000)
    loop.start()
    await turn()
    expect([seen.rounds, loop.isRunning()]).toEqual([1, true])
    await loop.stop()
    expect(loop.isRunning()).toBe(false)
  })

  it('createLoop ends its pause when it is woken, but not before the least pause', async () => {
    const { loop, seen } = startLoop({ ms: 60_000, leastMs: 50 })
    const startedAt = performance.now()
    await turn()
    loop.wake()
    while (seen.rounds < 2) await turn(1)
    expect(performance.now() - startedAt).toBeGreaterThan(45)
    await loop.stop()
  })

  it('createLoop does not lose a wake-up that comes during a round', async () => {
    let rounds = 0
    const loop = createLoop(async () => {
      if (++rounds === 1) loop.wake()
      return 60_000
    })
    loop.start()
    while (rounds < 2) await turn(1)
    await loop.stop()
    expect(rounds).toBe(2)
  })

  it('createLoop stops at once in a pause, and after the round under way', async () => {
    const signals: AbortSignal[] = []
    const { promise, resolve } = Promise.withResolvers<number>()
    const loop = createLoop((signal) => {
      signals.push(signal)
      return promise
    })
    loop.start()
    const stopped = loop.stop()
    expect(signals.map((signal) => signal.aborted)).toEqual([true])
    resolve(60_000)
    await stopped
    expect(signals).toHaveLength(1)
  })
})

describe('createFaultLog', () => {
  it('a log of faults is due for news, and again after its interval', () => {
    let now = 0
    const faults = createFaultLog(100, () => now)
    expect([faults.isDue('one'), faults.isDue('one'), faults.isDue('two')]).toEqual([
      true,
      false,
      true,
    ])
    now = 99
    expect(faults.isDue('two')).toBe(false)
    now = 100
    expect([faults.isDue('two'), faults.isDue('two')]).toEqual([true, false])
  })

  it('a log of faults is due again once the fault was over', () => {
    const faults = createFaultLog(100, () => 0)
    expect([faults.isDue(), faults.isDue()]).toEqual([true, false])
    faults.clear()
    expect(faults.isDue()).toBe(true)
  })
})
