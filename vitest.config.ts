import { defineConfig } from 'vitest/config'

/**
 * What boots images, installs packages, drives a browser, kills processes, crowds, sends hostile
 * input, or needs a service of its own for long: `npm run test:slow`.
 */
const SLOW = 'test/**/*.slow.test.ts'

/** Long enough for a machine that is busy with something else: who waits for a condition goes on at once. */
const POLL = { poll: { timeout: 30_000, interval: 20 } }

/** Each file loads both cores of a small machine, so they run one after the other. */
const ALONE = { fileParallelism: false, expect: POLL, testTimeout: 120_000, hookTimeout: 120_000 }

/**
 * Three projects. `unit`: one room at a time, in parallel, seconds. `integration`: real processes,
 * chains and databases. `slow`: the same under what they rarely meet.
 */
export default defineConfig({
  test: {
    globalSetup: 'test/support/run-keeper.ts',
    reporters: ['default', './test/support/run-summary.ts'],
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/integration/**', SLOW],
          // Files share their worker and the modules it has loaded: a test leaves no global changed.
          isolate: false,
          expect: POLL,
          maxWorkers: '100%',
          testTimeout: 60_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          exclude: [SLOW],
          ...ALONE,
        },
      },
      { test: { name: 'slow', include: [SLOW], ...ALONE } },
    ],
  },
})
