import { defineConfig } from 'vitest/config'

/**
 * Two projects. `unit`: one room at a time, in parallel, seconds. `integration`: real processes, chains and
 * databases, one file at a time, because each file loads both cores of a small machine.
 */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/integration/**'],
          testTimeout: 30_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
})
