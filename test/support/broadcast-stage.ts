import { afterEach, beforeEach, expect } from 'vitest'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { type Broadcaster, createBroadcaster } from '#src/chain/broadcaster.ts'
import { readContract } from './affidavit-contract.ts'
import {
  type LogLine,
  recordLog,
  signAnchors,
  startTestChain,
  TEST_NOTARY,
  type TestChain,
} from './chain.ts'
import { type ChainProxy, startChainProxy } from './chain-proxy.ts'
import { createMemoryAnchors, type MemoryAnchors } from './memory-anchors.ts'
import { until } from './until.ts'

/** Address of the local chain's relayer. */
export const RELAYER = '0x23618e81e3f5cdf7f54c3d65f7fbc0abf5b21e8f'

/** Times that let a test end in a second. */
const FAST = {
  pollIntervalMs: 20,
  heartbeatMs: 60,
  backoff: { minMs: 10, maxMs: 100 },
  rebroadcastMs: 300,
}

/** A real chain behind a proxy, a store, and broadcasters between them; new for each test. */
export type BroadcastStage = {
  readonly chain: TestChain
  readonly proxy: ChainProxy
  /** Through the proxy. */
  readonly rpc: Rpc
  readonly anchors: MemoryAnchors
  readonly logLines: readonly LogLine[]
  /** Starts a broadcaster, which is stopped after the test. */
  broadcast(changes?: Partial<Parameters<typeof createBroadcaster>[0]>): Broadcaster
  /** Stores `count` signed anchors, by default after the last stored one. */
  add(count: number, nonce?: number): Promise<void>
  untilConfirmed(count: number, timeoutMs?: number): Promise<void>
  /** The chain's count of the relayer's transactions. */
  chainNonce(): Promise<number>
  /**
   * Replaces the newest blocks of the chain, from the block of the anchor `nonce` on, with as many
   * new ones: these raw transactions are in the last one, the others are empty. Anvil may mine an
   * empty block after the anchors', so the number of blocks is read each time.
   */
  reorganise(from: { readonly nonce: number }, raws?: readonly string[]): Promise<void>
  /** Number of anchors whose stored block differs from their block on the chain. */
  staleCount(): Promise<number>
  /**
   * Expects that each stored anchor is in its block and succeeded there, and that the contract has
   * the newest head.
   */
  expectAllAnchored(): Promise<void>
}

/** Sets a stage for each test of the file. */
export function useBroadcastStage(): BroadcastStage {
  let chain: TestChain
  let proxy: ChainProxy
  let rpc: Rpc
  let anchors: MemoryAnchors
  let recorded: ReturnType<typeof recordLog>
  let running: Broadcaster[]

  beforeEach(async () => {
    chain = await startTestChain()
    proxy = await startChainProxy(chain.rpcUrl)
    rpc = createRpc({ url: proxy.url, timeoutMs: 3_000 })
    anchors = createMemoryAnchors()
    recorded = recordLog()
    running = []
  })

  afterEach(async () => {
    await Promise.all(running.map((broadcaster) => broadcaster.stop()))
    await rpc.close()
    await proxy.stop()
    await chain.dispose()
  })

  async function receipts(): Promise<readonly unknown[]> {
    const calls = anchors
      .all()
      .map((row) => ({ method: 'eth_getTransactionReceipt', params: [row.txHash] }))
    return (await chain.rpc.batch(calls)).map((reply) =>
      reply.kind === 'result' ? reply.value : reply,
    )
  }

  return {
    get chain() {
      return chain
    },
    get proxy() {
      return proxy
    },
    get rpc() {
      return rpc
    },
    get anchors() {
      return anchors
    },
    get logLines() {
      return recorded.lines
    },
    broadcast: (changes = {}) => {
      const { chainId, contract } = chain
      const base = {
        rpc,
        anchors,
        relayer: RELAYER,
        chainId,
        contract,
        confirmations: 1,
        log: recorded.log,
      }
      const broadcaster = createBroadcaster({ ...base, ...FAST, ...changes })
      running.push(broadcaster)
      broadcaster.start()
      return broadcaster
    },
    add: async (count, nonce = anchors.all().length) =>
      anchors.add(await signAnchors(chain, { count, nonce })),
    untilConfirmed: (count, timeoutMs) =>
      until(`${count} anchors confirmed`, () => anchors.count('confirmed') === count, timeoutMs),
    chainNonce: async () =>
      Number(await chain.rpc.call('eth_getTransactionCount', [RELAYER, 'latest'])),
    reorganise: async ({ nonce }, raws = []) => {
      const block = anchors.all().find((row) => row.nonce === nonce)?.blockNumber
      if (block === undefined || block === null) throw new Error(`anchor ${nonce} is not mined`)
      const head = Number(await chain.rpc.call('eth_blockNumber', []))
      const depth = head - block + 1
      await chain.rpc.call('anvil_reorg', [depth, raws.map((raw) => [raw, depth - 1])])
    },
    staleCount: async () => {
      const known = (await receipts()) as readonly ({ readonly blockHash: string } | null)[]
      return anchors.all().filter((row, at) => known[at]?.blockHash !== row.blockHash).length
    },
    expectAllAnchored: async () => {
      const rows = anchors.all()
      expect(await receipts()).toEqual(
        rows.map(({ txHash, blockHash }) =>
          expect.objectContaining({ transactionHash: txHash, status: '0x1', blockHash }),
        ),
      )
      const [size] = await readContract(chain, 'newestHead', [TEST_NOTARY.address])
      expect(Number(size)).toBe(1 + Math.floor((rows.length - 1) / 10))
    },
  }
}
