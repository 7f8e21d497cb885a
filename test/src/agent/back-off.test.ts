import { expect, it } from 'vitest'
import { AGENT_TIMINGS } from '#src/agent/agent.ts'
import { backOffMs } from '#src/runtime/back-off.ts'

const pauseAfter = (failures: number, random: () => number) =>
  backOffMs(failures, AGENT_TIMINGS.backOff, { jitter: 'full', random })

it('the bound of a pause doubles from a second to a minute', () => {
  const bounds = [1, 2, 3, 4, 5, 6, 7, 8, 2_000].map((failures) => pauseAfter(failures, () => 1))
  expect(bounds).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60].map((seconds) => seconds * 1_000))
})

it('a pause is spread over the whole bound, but is never nothing', () => {
  expect(pauseAfter(7, () => 0.5)).toBe(30_000)
  expect(pauseAfter(7, () => 0)).toBe(100)
  expect(pauseAfter(0, () => 0.5)).toBe(500)
})
