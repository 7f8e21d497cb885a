import { afterEach, expect, it, vi } from 'vitest'
import { startSweep } from '#src/nodes/runs/node-timer.ts'
import { createLogger } from '#src/observability/logger.ts'

afterEach(() => void vi.useRealTimers())

it('the sweep calls each job at its interval, also after one threw, and none after stop', () => {
  vi.useFakeTimers()
  const calls = { often: 0, seldom: 0, broken: 0 }
  const fail = () => {
    calls.broken++
    throw new Error('broken')
  }
  const sweep = startSweep({
    tickMs: 5,
    log: createLogger({ level: 'silent', destination: { write: () => undefined } }),
    jobs: [
      { everyMs: 5, run: fail },
      { everyMs: 5, run: () => calls.often++ },
      { everyMs: 50, run: () => calls.seldom++ },
    ],
  })
  vi.advanceTimersByTime(100)
  expect([calls, sweep.timers()]).toEqual([{ often: 20, seldom: 2, broken: 20 }, 1])
  sweep.stop()
  vi.advanceTimersByTime(100)
  expect([calls.often, sweep.timers(), vi.getTimerCount()]).toEqual([20, 0, 0])
})
