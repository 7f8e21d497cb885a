import { describe, expect, it } from 'vitest'
import { createSeenHeads, type SeenHead } from '#src/web/log/seen-heads.ts'

const NOTARY = `0x${'ab'.repeat(20)}`

function headOf(size: number): SeenHead {
  return {
    size,
    root: 'cd'.repeat(32),
    signature: `0x${'ef'.repeat(65)}`,
    chainId: 1,
    contract: `0x${'12'.repeat(20)}`,
    atMs: 1,
  }
}

/** The part of a browser's store that is used; `items` is what another tab sees, too. */
function storeOver(items: Map<string, string>): Storage {
  return {
    getItem: (name: string) => items.get(name) ?? null,
    setItem: (name: string, text: string) => void items.set(name, text),
  } as Storage
}

describe('heads that were seen', () => {
  it('heads that were seen are never replaced by one of fewer leaves, whichever tab was shown it', () => {
    const items = new Map<string, string>()
    const [one, other] = [createSeenHeads(storeOver(items)), createSeenHeads(storeOver(items))]
    expect(one.keep(NOTARY, headOf(80))).toBe(true)
    expect(one.keep(NOTARY, headOf(100))).toBe(true)
    expect(other.keep(NOTARY, headOf(90))).toBe(true)
    expect(other.find(NOTARY)).toEqual(headOf(100))
    expect(other.keep(NOTARY, headOf(101))).toBe(true)
    expect(one.find(NOTARY)).toEqual(headOf(101))
  })

  it('heads that were seen are kept where something else stood', () => {
    const items = new Map([[`affidavit:seen:${NOTARY}`, '{"size":"1000"}']])
    const seen = createSeenHeads(storeOver(items))
    expect(seen.keep(NOTARY, headOf(3))).toBe(true)
    expect(seen.find(NOTARY)).toEqual(headOf(3))
  })

  it('a browser without a store is said to keep no heads', () => {
    expect(createSeenHeads(null).keep(NOTARY, headOf(1))).toBe(false)
  })
})
