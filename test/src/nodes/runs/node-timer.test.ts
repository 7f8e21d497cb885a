import { expect, it } from 'vitest'
import { startSweep } from '#src/nodes/runs/node-timer.ts'
import { createLogger } from '#src/observability/logger.ts'

it('the sweep calls each job at its interval, also after one threw, and none after stop', async () => {
  const calls = { often: 0, seldom: 0, broken: 0 }
  const sweep = startSweep({
    tickMs: 5,
    log: createLogger({ level: 'silent', destination: { write: () => undefined } }),
    jobs: [
      {
        everyMs: 5,
        run: () => {
          calls.broken++
          throw new Error('broken')
        },
      },
      { everyMs: 5, run: () => calls.often++ },
      { everyMs: 50, run: () => calls.seldom++ },
    ],
  })
  expect(sweep.timers()).toBe(1)
  const deadline = performance.now() + 5_000
  while (calls.seldom < 2 && performance.now() < deadline)
    await new Promise((resolve) => setTimeout(resolve, 5))
  sweep.stop()
  const { often, broken, seldom } = calls
  expect(often).toBe(broken)
  expect(often).toBeGreaterThanOrEqual(seldom * 10)
  await new Promise((resolve) => setTimeout(resolve, 30))
  expect(calls.often).toBe(often)
  expect(sweep.timers()).toBe(0)
})
