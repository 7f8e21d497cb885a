import { describe, expect, it } from 'vitest'
import { NonceSet, openPayers, WrittenPayersForm } from '#audit/payers.ts'

const gaps = (nonces: readonly number[], end: number) => {
  const set = new NonceSet()
  for (const nonce of nonces) set.add(nonce)
  return set.gapsBelow(end).map((gap) => [gap.start, gap.end])
}

describe('NonceSet', () => {
  it('NonceSet gives the nonces that are missing, in whatever order the others came', () => {
    expect(gaps([], 3)).toEqual([[0, 3]])
    expect(gaps([0, 1, 2], 3)).toEqual([])
    expect(gaps([5, 1, 3, 2, 1, 5], 8)).toEqual([
      [0, 1],
      [4, 5],
      [6, 8],
    ])
    expect(gaps([9, 0], 4)).toEqual([[1, 4]])
  })

  it('NonceSet is one range for a relayer that only anchors, in any order of its logs', () => {
    const set = new NonceSet()
    for (let nonce = 0; nonce < 100; nonce += 2) set.add(nonce)
    for (let nonce = 99; nonce > 0; nonce -= 2) set.add(nonce)
    expect(set.list()).toEqual([{ start: 0, end: 100 }])
    expect(set.end).toBe(100)
  })
})

describe('openPayers', () => {
  it('openPayers goes on from what was written', () => {
    const address = `0x${'ab'.repeat(20)}`
    const first = openPayers()
    for (const nonce of [0, 1, 4]) first.record({ address, nonce })
    const next = openPayers(WrittenPayersForm.parse(JSON.parse(JSON.stringify(first.write()))))
    next.record({ address, nonce: 2 })
    expect(next.gapsBelow(address, 6)).toEqual([
      { start: 3, end: 4 },
      { start: 5, end: 6 },
    ])
    expect([next.isWhole, openPayers(null).isWhole]).toEqual([true, false])
  })

  it('openPayers refuses what is not a list of ranges', () => {
    for (const ranges of [
      [[2, 2]],
      [
        [0, 3],
        [3, 4],
      ],
      [
        [5, 6],
        [0, 1],
      ],
      [[-1, 1]],
    ])
      expect(WrittenPayersForm.safeParse({ [`0x${'ab'.repeat(20)}`]: ranges }).success).toBe(false)
  })
})
