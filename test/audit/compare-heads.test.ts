import { describe, expect, it } from 'vitest'
import { HeadIndex } from '#audit/known-heads.ts'

const root = (size: number) => new Uint8Array(32).fill(size % 251)

describe('HeadIndex', () => {
  const index = new HeadIndex(0)
  for (let size = 3; size <= 30_000; size += 3) index.add({ size, root: root(size) })

  it('HeadIndex tells a known head from another head of its size, and from a head of an unknown size', () => {
    for (const size of [3, 1500, 29_997, 30_000]) {
      expect(index.compare({ size, root: root(size) })).toBe('same')
      expect(index.compare({ size, root: root(size + 1) })).toBe('other')
      expect(index.compare({ size: size + 1, root: root(size) })).toBe('unknown')
      expect(index.rootAt(size)).toEqual(root(size))
    }
  })

  it('HeadIndex covers what lies between where it began and the largest', () => {
    expect([2, 4, 30_000, 30_001].map((size) => index.covers(size))).toEqual([
      true,
      true,
      true,
      false,
    ])
    const later = new HeadIndex(100)
    expect(later.covers(100)).toBe(false)
    later.add({ size: 120, root: root(1) })
    expect([99, 100, 120].map((size) => later.covers(size))).toEqual([false, true, true])
  })

  it('HeadIndex takes growing sizes alone', () => {
    expect(() => index.add({ size: 30_000, root: root(1) })).toThrow(RangeError)
  })
})
