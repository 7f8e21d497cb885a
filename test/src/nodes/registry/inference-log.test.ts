import { expect, it } from 'vitest'
import { createInferenceLog, FLUSH_ROWS_MAX } from '#src/nodes/registry/inference-log.ts'
import type { Inference } from '#src/nodes/registry/inferences-store.ts'
import { createLogger } from '#src/observability/logger.ts'

const log = createLogger({ level: 'silent', destination: { write: () => undefined } })

function row(id: number): Inference {
  return {
    id: String(id),
    nodeId: 'n',
    accountId: null,
    model: 'm',
    timeToFirstTokenMs: 1,
    createdAt: 1,
    promptTokens: 1,
    completionTokens: 1,
    totalTokens: 2,
  }
}

it('the log of served runs stores everything once, in batches', async () => {
  const batches: number[] = []
  const inferences = createInferenceLog({
    log,
    inferencesMax: 10_000,
    sink: { add: async (rows) => void batches.push(rows.length) },
  })
  for (let id = 0; id < FLUSH_ROWS_MAX + 10; id++) inferences.add(row(id))
  await Promise.all([inferences.flush(), inferences.flush()])
  expect(batches).toEqual([FLUSH_ROWS_MAX, 10])
  expect(inferences.waiting()).toBe(0)
})

it('the log of served runs keeps what could not be stored, and what came meanwhile', async () => {
  const stored: string[] = []
  let isAway = true
  const inferences = createInferenceLog({
    log,
    inferencesMax: 10,
    sink: {
      async add(rows) {
        if (isAway) throw new Error('away')
        stored.push(...rows.map(({ id }) => id))
      },
    },
  })
  inferences.add(row(1))
  await inferences.flush()
  inferences.add(row(2))
  expect(inferences.waiting()).toBe(2)
  isAway = false
  await inferences.flush()
  expect(stored).toEqual(['1', '2'])
})

it('the log of served runs drops the oldest beyond its bound', () => {
  const inferences = createInferenceLog({
    log,
    inferencesMax: 100,
    sink: { add: async () => {} },
  })
  for (let id = 0; id < 1_000; id++) inferences.add(row(id))
  expect(inferences.waiting()).toBeLessThanOrEqual(100)
  expect(inferences.waiting()).toBeGreaterThanOrEqual(90)
})
