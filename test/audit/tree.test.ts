import { describe, expect, it } from 'vitest'
import { drawRandom } from '#audit/samples.ts'

describe('drawRandom', () => {
  it.each([1, 2, 1000, 2 ** 48 - 1, 2 ** 48, 2 ** 53 - 1])(
    'drawRandom gives whole numbers below %d',
    (end) => {
      for (let draw = 0; draw < 100; draw++) {
        const drawn = drawRandom(end)
        expect(Number.isSafeInteger(drawn)).toBe(true)
        expect(drawn).toBeGreaterThanOrEqual(0)
        expect(drawn).toBeLessThan(end)
      }
    },
  )

  it('drawRandom reaches all numbers of a small range', () => {
    expect(new Set(Array.from({ length: 1000 }, () => drawRandom(4))).size).toBe(4)
  })
})
