import { describe, expect, it } from 'vitest'
import { auditEvents, REORGANISED_BLOCKS_MAX } from '../../audit/anchors.ts'
import type { AnchorEvent } from '../../audit/chain.ts'
import { openLedger } from '../../audit/findings.ts'
import { HeadIndex } from '../../audit/known-heads.ts'

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

/** Audits the events as a run that continues after all old heads does. */
async function run(events: readonly AnchorEvent[], fromBlock = 0) {
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
    ledger,
    fromBlock,
  }
  const block = await auditEvents(context as unknown as Parameters<typeof auditEvents>[0], null)
  const check = ledger.checks().find(({ name }) => name === 'heads on chain')
  return {
    codes: ledger.findings().map(({ code }) => code),
    outcome: check?.outcome,
    nextFrom: block - REORGANISED_BLOCKS_MAX,
  }
}

describe('auditEvents', () => {
  it('an audit catches another history behind any number of copies of an old head', async () => {
    const copies = Array.from({ length: LOOKUPS_MAX + 1 }, () => eventOf(3, 5_000))
    const { codes } = await run([...copies, forkedAt(5_001)])
    expect(codes).toEqual(['equivocation'])
  })

  it('an audit that skips events lets the next run begin with the first of them, and so catches another history', async () => {
    const olds = Array.from({ length: LOOKUPS_MAX }, (_, at) => eventOf(10 + at, 5_000))
    const events = [...olds, forkedAt(5_001), eventOf(8, 5_002)]
    const first = await run(events)
    expect(first).toEqual({ codes: [], outcome: 'not checked', nextFrom: 5_001 })
    const second = await run(events, first.nextFrom)
    expect(second.codes).toEqual(['equivocation'])
    expect(second.nextFrom).toBe(NEWEST_BLOCK - REORGANISED_BLOCKS_MAX)
  })

  it('an audit that skips an event of the newest blocks reads all blocks again that may be replaced', async () => {
    const olds = Array.from({ length: LOOKUPS_MAX }, (_, at) => eventOf(10 + at, 5_000))
    const { nextFrom } = await run([...olds, forkedAt(NEWEST_BLOCK)])
    expect(nextFrom).toBe(NEWEST_BLOCK - REORGANISED_BLOCKS_MAX)
  })
})
