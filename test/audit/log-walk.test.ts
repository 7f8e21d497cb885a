import { describe, expect, it } from 'vitest'
import { readAhead } from '#audit/read-ahead.ts'

describe('readAhead', () => {
  it('readAhead gives all in order, and asks for one more than is in hand', async () => {
    const asked: number[] = []
    const given: number[] = []
    async function* count() {
      for (let at = 0; at < 4; at++) {
        asked.push(at)
        yield at
      }
    }
    for await (const item of readAhead(count())) {
      given.push(item)
      await new Promise((resolve) => setImmediate(resolve))
      expect(asked.length).toBe(Math.min(given.length + 1, 4))
    }
    expect(given).toEqual([0, 1, 2, 3])
  })

  it('readAhead throws what the source throws, after what came before it', async () => {
    async function* fail() {
      yield 1
      throw new Error('broken')
    }
    const given: number[] = []
    const reading = async () => {
      for await (const item of readAhead(fail())) given.push(item)
    }
    await expect(reading()).rejects.toThrow('broken')
    expect(given).toEqual([1])
  })

  it('readAhead ends the source, and hears no more of its faults, when the reader stops early', async () => {
    let isEnded = false
    async function* source() {
      try {
        yield 1
        yield 2
        yield 3
      } finally {
        isEnded = true
      }
    }
    for await (const _ of readAhead(source())) break
    await expect.poll(() => isEnded).toBe(true)
  })
})
