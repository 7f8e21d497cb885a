import { expect, it } from 'vitest'
import type { Rpc, RpcCall } from '#client/rpc.ts'
import { findFork, findNewestPlaced, isOnChain, PAGE_ROWS } from '#src/chain/fork-detection.ts'
import { createMemoryAnchors, type MemoryAnchors } from '../../support/memory-anchors.ts'

const RELAYER = `0x${'ab'.repeat(20)}`
const SIGNAL = new AbortController().signal
const COUNT = 2 * PAGE_ROWS + 50

/** Hash of a block on side `side` of a fork. */
function blockHash(number: number, side: number): string {
  return `0x${side}${number.toString(16).padStart(63, '0')}`
}

/**
 * Anchors of which `placed` were seen in blocks of side 0, three to a block; the others are
 * pending.
 */
async function storeAnchors(isPlaced: (nonce: number) => boolean): Promise<MemoryAnchors> {
  const anchors = createMemoryAnchors()
  const nonces = Array.from({ length: COUNT }, (_, nonce) => nonce)
  anchors.add(nonces.map((nonce) => ({ relayer: RELAYER, nonce, txHash: `0x${nonce}`, raw: '0x' })))
  const rows = nonces.filter(isPlaced).map((nonce) => {
    const blockNumber = Math.floor(nonce / 3)
    return { nonce, blockNumber, blockHash: blockHash(blockNumber, 0), succeeded: true, gasUsed: 1 }
  })
  await anchors.markMined(RELAYER, rows)
  return anchors
}

/** An endpoint whose chain left side 0 at block `fork`, and is `height` blocks high. */
function forkedChain(fork: number, height = COUNT): Rpc {
  const reply = ({ params: [number] }: RpcCall) => {
    const at = Number(number)
    return {
      kind: 'result',
      value: at < height ? { hash: blockHash(at, at < fork ? 0 : 1) } : null,
    } as const
  }
  return {
    call: () => Promise.reject(new Error('not asked for')),
    batch: (calls) => Promise.resolve(calls.map(reply)),
    close: () => Promise.resolve(),
  }
}

it.each([0, 1, 66, 67, 133, 134, 149])(
  'findFork finds the first anchor of block %i, where the chain forked',
  async (fork) => {
    const anchors = await storeAnchors(() => true)
    const options = { rpc: forkedChain(fork), anchors, relayer: RELAYER }
    expect(await findFork(options, COUNT - 1, SIGNAL)).toBe(fork * 3)
  },
)

it('findFork takes blocks above the end of the chain for undone', async () => {
  const anchors = await storeAnchors(() => true)
  const options = { rpc: forkedChain(COUNT, 40), anchors, relayer: RELAYER }
  expect(await findFork(options, COUNT - 1, SIGNAL)).toBe(120)
})

it('findFork passes over anchors without a block, whole pages of them, too', async () => {
  const anchors = await storeAnchors((nonce) => nonce < 30 || nonce === COUNT - 1)
  const options = { rpc: forkedChain(5), anchors, relayer: RELAYER }
  expect(await findFork(options, COUNT - 1, SIGNAL)).toBe(15)
})

it.each([0, 199, 200, COUNT - 1])(
  'findNewestPlaced finds anchor %i when it is the last with a block',
  async (last) => {
    const anchors = await storeAnchors((nonce) => nonce <= last)
    expect((await findNewestPlaced(anchors, RELAYER, COUNT))?.nonce).toBe(last)
  },
)

it('findNewestPlaced finds no anchor when none has a block', async () => {
  expect(await findNewestPlaced(await storeAnchors(() => false), RELAYER, COUNT)).toBeNull()
})

it('isOnChain compares the hash of the block of that number', async () => {
  const placed = { nonce: 9, blockNumber: 3, blockHash: blockHash(3, 0) }
  expect(await isOnChain(forkedChain(4), placed, SIGNAL)).toBe(true)
  expect(await isOnChain(forkedChain(3), placed, SIGNAL)).toBe(false)
  expect(await isOnChain(forkedChain(9, 3), placed, SIGNAL)).toBe(false)
})
