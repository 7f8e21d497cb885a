import { afterAll, afterEach, expect, it } from 'vitest'
import { decodeBlockHeader } from '#attestation/evidence/block.ts'
import { verifyTrieProof } from '#attestation/evidence/trie.ts'
import type { Rpc } from '#client/rpc.ts'
import { createAnchorBlocksStore } from '#src/chain/anchor-blocks-store.ts'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import {
  BLOCKS_WAITING_MAX,
  type BlockKeeper,
  type BlockKeeperOptions,
  createBlockKeeper,
  createBlockProofs,
  UNREADABLE_MS,
} from '#src/chain/block-proofs.ts'
import { BlockUnreadable, fetchBlock } from '#src/chain/read-block.ts'
import { createCommitsStore } from '#src/verified/commits/commits-store.ts'
import { AT_ONCE_MS } from '../../support/at-once.ts'
import { recordLog, signAnchors, startTestChain } from '../../support/chain.ts'
import { useDatabase } from '../../support/databases.ts'
import { until } from '../../support/until.ts'
import {
  buildCommit,
  makeLog,
  minedAt,
  OPENING,
  stateAfter,
} from '../verified/commits/build-commit.ts'

const ANCHORS = 6

const chain = await startTestChain()
afterAll(() => chain.dispose())
await chain.rpc.call('evm_setAutomine', [false])
const database = await useDatabase()
const blocks = createAnchorBlocksStore(database)
/** Of the test's own log: its keeper leaves those of the others alone. */
let { chainId } = OPENING.domain
let txHashes: readonly string[] = []
const stops: (() => Promise<void>)[] = []

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop()
})
/** Anchors of a log for a chain id of its own that are confirmed, two to a block. */
async function storeAnchors(): Promise<void> {
  chainId++
  const commits = createCommitsStore(database)
  const anchors = createAnchorsStore(database)
  const nonce = Number(
    await chain.rpc.call('eth_getTransactionCount', [await relayerOf(), 'latest']),
  )
  const signed = await signAnchors(chain, { count: ANCHORS, nonce })
  const log = { ...makeLog(), relayer: signed[0]?.relayer ?? '' }
  await commits.raiseNonce(log.relayer, nonce)
  expect(await commits.nextNonce(log.relayer)).toBe(nonce)
  let state = await commits.openLog({
    ...log,
    ...OPENING,
    domain: { ...OPENING.domain, chainId },
  })
  for (const [at, { raw, txHash }] of signed.entries()) {
    const commit = buildCommit({ log, state, nonce: nonce + at, records: [{}] })
    await commits.commit({ ...commit, anchor: { ...commit.anchor, raw, hash: txHash } })
    state = stateAfter(state, commit)
    await chain.rpc.call('eth_sendRawTransaction', [raw])
    if (at % 2 === 1) await chain.rpc.call('evm_mine', [])
  }
  for (const { txHash, nonce } of signed) {
    const receipt = await chain.rpc.call('eth_getTransactionReceipt', [txHash])
    const { blockNumber, blockHash } = receipt as Record<'blockNumber' | 'blockHash', string>
    await anchors.markMined(log.relayer, [minedAt(nonce, Number(blockNumber), blockHash)])
  }
  await anchors.markConfirmed(log.relayer, nonce + ANCHORS)
  txHashes = signed.map(({ txHash }) => txHash)
}

async function relayerOf(): Promise<string> {
  return (await signAnchors(chain, { count: 1 }))[0]?.relayer ?? ''
}

type Read = Parameters<typeof createBlockProofs>[0]['fetchBlock']
const readFrom =
  (rpc: Rpc): Read =>
  (hash, signal) =>
    fetchBlock(rpc, hash, signal)

/** A keeper that is quick, over these reads; notes which blocks it asked for. */
function startKeeper(read: Read, options: Partial<BlockKeeperOptions> = {}) {
  const asked: string[] = []
  const fetchRecorded: Read = (hash, signal) => {
    asked.push(hash)
    return read(hash, signal)
  }
  // No block is remembered as unreadable: the keeper itself waits before it asks again.
  let nowMs = 0
  const now = () => (nowMs += UNREADABLE_MS)
  const proofs = createBlockProofs({ blocks, fetchBlock: fetchRecorded, now })
  const { log, lines } = recordLog()
  const times = {
    pauseMs: 1,
    idleMs: 20,
    backoff: { minMs: 5, maxMs: 20 },
    retryMs: 100,
    busyMs: 5,
  }
  const keeper: BlockKeeper = createBlockKeeper({
    blocks,
    proofs,
    chainId,
    isBusy: () => false,
    log,
    ...times,
    ...options,
  })
  keeper.start()
  stops.push(async () => {
    await Promise.all([proofs.stop(), keeper.stop()])
  })
  return { asked, proofs, lines, keeper }
}

const proofsStored = async () =>
  (await Promise.all(txHashes.map((hash) => blocks.findAnchor(hash)))).filter(
    (found) => found?.proof,
  )
const allStored = async () => (await proofsStored()).length === ANCHORS

it('the block keeper reads each block once and stores a proof of every anchor in it', async () => {
  await storeAnchors()
  const { asked } = startKeeper(readFrom(chain.rpc))
  await until('all proofs are stored', allStored)
  expect(asked).toHaveLength(ANCHORS / 2)
  for (const found of await proofsStored()) {
    const proof = found?.proof
    if (!proof) throw new Error('expected a proof')
    const { transactionsRoot, receiptsRoot, hash } = decodeBlockHeader(proof.header)
    expect(hash).toBe(found?.block?.hash)
    const place = { index: proof.transactionIndex }
    const raw = verifyTrieProof({
      ...place,
      root: transactionsRoot,
      nodes: proof.transactionProof,
    })
    expect(`0x${Buffer.from(raw).toString('hex')}`).toBe(found?.raw)
    verifyTrieProof({ ...place, root: receiptsRoot, nodes: proof.receiptProof })
  }
  await until('it is idle', async () => (await blocks.nextUnproven(chainId, null)) === null)
})

it('the block keeper passes over a block that cannot be read, and tries it again later', async () => {
  await storeAnchors()
  const first = (await blocks.nextUnproven(chainId, null))?.hash ?? ''
  let isUnreadable = true
  const { asked } = startKeeper((hash, signal) =>
    hash === first && isUnreadable
      ? Promise.reject(new BlockUnreadable('unknown_header', 'a field that is not known'))
      : fetchBlock(chain.rpc, hash, signal),
  )
  await until('the others are stored', async () => (await proofsStored()).length === ANCHORS - 2)
  const count = asked.length
  isUnreadable = false
  await until('all proofs are stored', allStored)
  expect(asked.slice(count)).toContain(first)
})

it('the block keeper lets calls pass first, but not for ever', async () => {
  await storeAnchors()
  let looks = 0
  const isBusy = () => {
    looks++
    return true
  }
  const { asked } = startKeeper(readFrom(chain.rpc), { isBusy, busyMs: 5, busyMaxMs: 50 })
  await until('all proofs are stored', allStored)
  expect(looks).toBeGreaterThanOrEqual(10 * asked.length)
})

it('the block keeper stops at once while it waits for the chain, and stores nothing afterwards', async () => {
  await storeAnchors()
  const { asked, keeper, proofs } = startKeeper(
    (_, signal) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
  )
  await until('it reads', () => asked.length === 1)
  const startedAt = performance.now()
  await Promise.all([proofs.stop(), keeper.stop()])
  expect(performance.now() - startedAt).toBeLessThan(AT_ONCE_MS)
  expect(await proofsStored()).toHaveLength(0)
})

it('an unreadable block is counted until it is read, and asked for again only after a while', async () => {
  await storeAnchors()
  const { hash = '' } = (await blocks.nextUnproven(chainId, null)) ?? {}
  let nowMs = 5
  let isReadable = false
  const fetched: string[] = []
  const proofs = createBlockProofs({
    blocks,
    fetchBlock: (asked, signal) => {
      fetched.push(asked)
      if (isReadable) return fetchBlock(chain.rpc, asked, signal)
      return Promise.reject(new BlockUnreadable('unknown_header', 'a fork of its own'))
    },
    now: () => nowMs,
  })
  expect(proofs.unreadable()).toEqual({ count: 0, reason: null })
  for (let count = 0; count < 3; count++)
    await expect(proofs.prove(hash)).rejects.toMatchObject({ code: 'unknown_header' })
  nowMs += UNREADABLE_MS - 1
  await expect(proofs.prove(hash)).rejects.toThrow('a fork of its own')
  expect(fetched).toEqual([hash])
  expect(proofs.unreadable()).toEqual({ count: 1, reason: 'unknown_header' })
  nowMs += 1
  isReadable = true
  expect((await proofs.prove(hash))?.size).toBe(2)
  expect(fetched).toEqual([hash, hash])
  expect(proofs.unreadable()).toEqual({ count: 0, reason: null })
})

it('the block keeper reads a block once for all who ask, one at a time, and no more than may wait', async () => {
  await storeAnchors()
  let running = 0
  let most = 0
  const proofs = createBlockProofs({
    blocks,
    fetchBlock: async (hash, signal) => {
      most = Math.max(most, ++running)
      const block = await fetchBlock(chain.rpc, hash, signal)
      running--
      return block
    },
  })
  const { hash = '' } = (await blocks.nextUnproven(chainId, null)) ?? {}
  const unknown = Array.from(
    { length: BLOCKS_WAITING_MAX },
    (_, at) => `0x${String(at).padStart(64, '0')}`,
  )
  const [one, other, ...rest] = [hash, hash, ...unknown].map((each) => proofs.prove(each))
  expect(other).toBe(one)
  expect((await one)?.size).toBe(2)
  expect((await Promise.all(rest)).filter((found) => found !== null)).toEqual([])
  expect(most).toBe(1)
})
