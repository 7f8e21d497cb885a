import { describe, expect, it } from 'vitest'
import { auditEvents } from '#audit/anchors.ts'
import type { AnchorEvent } from '#audit/chain.ts'
import { openLedger } from '#audit/findings.ts'
import { HeadIndex } from '#audit/known-heads.ts'

const NOTARY = `0x${'aa'.repeat(20)}`
const CONTRACT = `0x${'cc'.repeat(20)}`
const NEWEST_BLOCK = 9_000
const LOOKUPS_MAX = 1_000

const rootOf = (size: number) => new Uint8Array(32).fill(size % 251)

function eventOf(size: number, blockNumber: number, root = rootOf(size)): AnchorEvent {
  const txHash = `0x${'11'.repeat(32)}`
  const from = { address: CONTRACT, notary: NOTARY, blockNumber, txHash }
  return { kind: 'anchored', ...from, size, root, kept: null }
}

/** The contract has another root of size 7 than the gateway serves. */
const forkedAt = (blockNumber: number) => eventOf(7, blockNumber, new Uint8Array(32).fill(0xee))

type Saved = Parameters<typeof auditEvents>[2]

/** Audits the events as a run that continues after all old heads does. */
async function run(events: readonly AnchorEvent[], saved: Saved = { eventBlock: null }) {
  const ledger = openLedger(NOTARY, [])
  const context = {
    log: { notary: NOTARY, domain: { chainId: 1, contract: CONTRACT } },
    chain: {
      fetchNewestBlock: async () => NEWEST_BLOCK,
      async *eventPages(range: { readonly fromBlock: number; readonly toBlock: number }) {
        yield events.filter(
          ({ blockNumber }) => blockNumber >= range.fromBlock && blockNumber <= range.toBlock,
        )
      },
    },
    gateway: { fetchHead: async (_: string, size: number) => ({ size, root: rootOf(size) }) },
    index: new HeadIndex(1_000_000),
    scope: { fromBlock: 0 },
    ledger,
  }
  const next = await auditEvents(
    context as unknown as Parameters<typeof auditEvents>[0],
    null,
    saved,
  )
  const check = ledger.checks().find(({ name }) => name === 'heads on chain')
  return { codes: ledger.findings().map(({ code }) => code), outcome: check?.outcome, next }
}

/** Old heads in one block, as many as a run looks up. */
const oldsIn = (blockNumber: number, from: number) =>
  Array.from({ length: LOOKUPS_MAX }, (_, at) => eventOf(from + at, blockNumber))

describe('auditEvents', () => {
  it('an audit catches another history behind any number of copies of an old head', async () => {
    const copies = Array.from({ length: LOOKUPS_MAX + 1 }, () => eventOf(3, 5_000))
    const { codes } = await run([...copies, forkedAt(5_001)])
    expect(codes).toEqual(['equivocation'])
  })

  it('an audit that skips events lets the next run read them, and so catches another history', async () => {
    const events = [...oldsIn(5_000, 10), forkedAt(5_001), eventOf(8, 5_002)]
    const first = await run(events)
    expect(first).toEqual({
      codes: [],
      outcome: 'not checked',
      next: { eventBlock: NEWEST_BLOCK, skippedBlocks: { from: 5_001, to: NEWEST_BLOCK } },
    })
    const second = await run(events, first.next)
    expect(second.codes).toEqual(['equivocation'])
    expect(second.next).toEqual({ eventBlock: NEWEST_BLOCK, skippedBlocks: null })
  })

  it('an audit with skipped events reads the newest blocks first', async () => {
    const events = [...oldsIn(5_000, 10), ...oldsIn(5_001, 2_000), forkedAt(NEWEST_BLOCK)]
    const saved = { eventBlock: NEWEST_BLOCK, skippedBlocks: { from: 5_000, to: 8_000 } }
    const { codes, next } = await run(events, saved)
    expect(codes).toEqual(['equivocation'])
    expect(next.skippedBlocks).toEqual({ from: 5_001, to: 8_000 })
  })

  it('an audit joins the blocks that this run and earlier runs skipped', async () => {
    const late = NEWEST_BLOCK - 50
    const events = [
      ...oldsIn(5_000, 10),
      eventOf(9, 5_001),
      ...oldsIn(late, 2_000),
      forkedAt(late + 1),
    ]
    const saved = { eventBlock: NEWEST_BLOCK, skippedBlocks: { from: 5_000, to: 8_950 } }
    const { codes, next } = await run(events, saved)
    expect(codes).toEqual([])
    expect(next.skippedBlocks).toEqual({ from: 5_001, to: NEWEST_BLOCK })
  })
})
