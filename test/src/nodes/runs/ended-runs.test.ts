import { expect, it } from 'vitest'
import { createEndedRuns } from '#src/nodes/runs/stray-frames.ts'

it('a list of ended runs knows each run once, and the newest runs alone', () => {
  const ended = createEndedRuns(2)
  for (const id of ['a', 'b', 'c']) ended.add(id)
  expect(['a', 'b', 'c', 'c'].map((id) => ended.take(id))).toEqual([false, true, true, false])
})
