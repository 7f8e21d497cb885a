import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

/** `npm run test:slow`: real processes, a browser, a fresh clone. */
const SLOW = 'test/**/*.slow.test.ts'

/** `npm run test:nightly`: floods, many random inputs, images built and booted, agents from the registry. */
const NIGHTLY = 'test/**/*.nightly.test.ts'

/** Slow files that crowd a service, fill its memory or kill processes at a given moment. */
const ALONE_FILES = [
  'test/integration/{front-door,gateway-processes,replicas}.slow.test.ts',
  'test/integration/*-crash.slow.test.ts',
]

/** Long enough for a machine that is busy with something else: who waits for a condition goes on at once. */
const POLL = { poll: { timeout: 30_000, interval: 20 } }

/** For files that start processes. */
const PATIENT = { expect: POLL, testTimeout: 120_000, hookTimeout: 120_000 }

/** For slow tests: several take two minutes on a machine that does something else. */
const SLOW_TIMES = { ...PATIENT, testTimeout: 400_000, hookTimeout: 300_000 }

/** Files that wait leave their core to files that compute: one worker more than cores. */
const maxWorkers = availableParallelism() + 1

/**
 * `unit`: one room at a time. `integration`: real processes, chains and databases. `slow` and
 * `slow-alone`: the same under what they rarely meet. `nightly`: the same for long.
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
          exclude: ['test/integration/**', SLOW, NIGHTLY],
          runner: 'test/support/unit-runner.ts',
          // Files share their worker and the modules it has loaded: a test leaves no global changed.
          isolate: false,
          expect: POLL,
          maxWorkers,
          testTimeout: 60_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          exclude: [SLOW, NIGHTLY],
          ...PATIENT,
          maxWorkers,
        },
      },
      {
        test: {
          name: 'slow',
          include: [SLOW],
          exclude: ALONE_FILES,
          ...SLOW_TIMES,
          maxWorkers,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'slow-alone',
          include: ALONE_FILES,
          ...SLOW_TIMES,
          fileParallelism: false,
          sequence: { groupOrder: 2 },
        },
      },
      {
        test: {
          name: 'nightly',
          include: [NIGHTLY],
          ...SLOW_TIMES,
          fileParallelism: false,
          sequence: { groupOrder: 3 },
        },
      },
    ],
  },
})
