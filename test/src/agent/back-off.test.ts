import { describe, expect, it } from 'vitest'
import { BACK_OFF, pauseAfter } from '../../../src/agent/back-off.ts'

describe('pauseAfter', () => {
  it('doubles its bound from a second to a minute', () => {
    const bounds = [1, 2, 3, 4, 5, 6, 7, 8, 2_000].map((failures) => pauseAfter(failures, BACK_OFF, () => 1))
    expect(bounds).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60].map((seconds) => seconds * 1_000))
  })

  it('spreads over the whole of it, but is never nothing', () => {
    expect(pauseAfter(7, BACK_OFF, () => 0.5)).toBe(30_000)
    expect(pauseAfter(7, BACK_OFF, () => 0)).toBe(100)
    expect(pauseAfter(0, BACK_OFF, () => 0.5)).toBe(500)
  })
})
