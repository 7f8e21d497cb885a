import { expect, it } from 'vitest'
import { createEndedRuns, createStrayBudget } from '#src/nodes/runs/stray-frames.ts'

const LIMITS = { strayBurst: 10, strayPerSecond: 2 }

it('the budget for stray frames holds its burst, and then what it is refilled by', () => {
  const budget = createStrayBudget(LIMITS)
  for (let count = 0; count < 10; count++) expect(budget.spend(0, 1_000)).toBe(true)
  expect(budget.spend(0, 1_000)).toBe(false)
  expect(budget.spend(0, 2_000)).toBe(true)
})

it('the budget for stray frames is spent by size as well', () => {
  expect(createStrayBudget(LIMITS).spend(9 * 1024, 1_000)).toBe(true)
  expect(createStrayBudget(LIMITS).spend(10 * 1024, 1_000)).toBe(false)
})

it('the budget for stray frames never holds more than its burst', () => {
  const budget = createStrayBudget(LIMITS)
  budget.spend(0, 1_000)
  expect(budget.spend(10 * 1024, 1e9)).toBe(false)
})

it('a list of ended runs knows each run once, and the newest runs alone', () => {
  const ended = createEndedRuns(2)
  for (const id of ['a', 'b', 'c']) ended.add(id)
  expect(['a', 'b', 'c', 'c'].map((id) => ended.take(id))).toEqual([false, true, true, false])
})
