import { defineConfig } from 'vitest/config'

/**
 * What boots images, installs packages, drives a browser, kills processes, crowds, sends hostile
 * input, or needs a service of its own for long: `npm run test:slow`.
 */
const SLOW = 'test/**/*.slow.test.ts'

/** Those of them that crowd a service, fill its memory or kill processes at a given moment. */
const ALONE_FILES = [
  'test/integration/{chaos,service-chaos,faults,enclave-faults,front-door}.slow.test.ts',
  'test/integration/{memory,enclave-memory,gateway-processes,node-presence}.slow.test.ts',
  'test/integration/*-crash.slow.test.ts',
  'test/src/**/*.slow.test.ts',
]

/** Long enough for a machine that is busy with something else: who waits for a condition goes on at once. */
const POLL = { poll: { timeout: 30_000, interval: 20 } }

/** For files that start processes. */
const PATIENT = { expect: POLL, testTimeout: 120_000, hookTimeout: 120_000 }

/** For slow tests: several take two minutes on a machine that does something else. */
const SLOW_TIMES = { ...PATIENT, testTimeout: 400_000, hookTimeout: 300_000 }

/** For files that wait more than they compute: two of them fit a machine of two cores. */
const IN_PAIRS = { ...PATIENT, maxWorkers: 2 }

/**
 * Four projects. `unit`: one room at a time, in parallel, seconds. `integration`: real processes,
 * chains and databases. `slow` and `slow-alone`: the same under what they rarely meet.
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
          runner: 'test/support/cpu-time.ts',
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
          ...IN_PAIRS,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'slow',
          include: [SLOW],
          exclude: ALONE_FILES,
          ...SLOW_TIMES,
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
        },
      },
      {
        test: {
          name: 'slow-alone',
          include: ALONE_FILES,
          ...SLOW_TIMES,
          fileParallelism: false,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
})
