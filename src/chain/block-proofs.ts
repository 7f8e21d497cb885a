import { setImmediate as nextTurn } from 'node:timers/promises'
import { equalBytes } from '#attestation/bytes.ts'
import { decodeBlockHeader } from '#attestation/evidence/block.ts'
import { buildTrieProof } from '#attestation/evidence/trie.ts'
import type { Logger } from '../observability/logger.ts'
import { type BackOffBounds, backOffMs } from '../runtime/back-off.ts'
import { createFaultLog } from '../runtime/fault-log.ts'
import { createLoop, pause } from '../runtime/loop.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import type {
  AnchorBlockProof,
  AnchorBlocksStore,
  BlockPlace,
  BlockProof,
} from './anchor-blocks-store.ts'
import { BlockUnreadable, type RawBlock } from './read-block.ts'

/**
 * Maximum number of blocks that wait to be read. Blocks are read one by one, because each takes
 * some megabytes.
 */
export const BLOCKS_WAITING_MAX = 8

/**
 * An unreadable block is not read again for this time. Otherwise each request for a bundle with
 * this block would fetch megabytes.
 */
export const UNREADABLE_MS = 60_000
/** Above this number of unreadable blocks, all of them are forgotten. */
const UNREADABLE_BLOCKS_MAX = 1_000

export type BlockProofs = {
  /**
   * Reads the block with this hash, and stores the proofs of all anchors in it. Concurrent calls
   * for a block share one reading. Returns null if the chain does not have the block, or if
   * BLOCKS_WAITING_MAX other blocks wait. Rejects with RpcError, BlockUnreadable and the store's
   * errors. After a BlockUnreadable, calls for the block reject for UNREADABLE_MS without reading.
   */
  prove(blockHash: string): Promise<ProofsByHash | null>
  /**
   * The number of unreadable blocks, and why the last one is unreadable. Null without such a block.
   */
  unreadable(): { readonly count: number; readonly reason: BlockUnreadable['code'] | null }
  /** Aborts the running reads. Resolves when all reads have ended. */
  stop(): Promise<void>
}

/** Proofs by the hash of their transactions, 0x, lower case. */
type ProofsByHash = ReadonlyMap<string, BlockProof>

/** `fetchBlock` returns null for an unknown hash. */
export function createBlockProofs(options: {
  readonly blocks: Pick<AnchorBlocksStore, 'listInBlock' | 'save'>
  readonly fetchBlock: (hash: string, signal: AbortSignal) => Promise<RawBlock | null>
  /** Monotonic time in milliseconds. Default: performance.now. */
  readonly now?: () => number
}): BlockProofs {
  const { blocks, fetchBlock, now = () => performance.now() } = options
  const stopping = new AbortController()
  const waiting = new Map<string, Promise<ProofsByHash | null>>()
  const unreadable = new Map<string, { readonly atMs: number; readonly fault: BlockUnreadable }>()
  const queue = createSerialQueue()

  async function readOrRemember(hash: string): Promise<ProofsByHash | null> {
    try {
      const found = await read(hash)
      unreadable.delete(hash)
      return found
    } catch (fault) {
      if (fault instanceof BlockUnreadable) {
        unreadable.delete(hash)
        if (unreadable.size >= UNREADABLE_BLOCKS_MAX) unreadable.clear()
        unreadable.set(hash, { atMs: now(), fault })
      }
      throw fault
    }
  }

  async function read(hash: string): Promise<ProofsByHash | null> {
    stopping.signal.throwIfAborted()
    const block = await fetchBlock(hash, stopping.signal)
    if (block === null) return null
    const found: AnchorBlockProof[] = []
    const proofs = new Map<string, BlockProof>()
    for (const { relayer, nonce, txHash } of await blocks.listInBlock(
      hash,
      block.transactionHashes,
    )) {
      const proof = proveTransaction(block, txHash)
      found.push({ relayer, nonce, proof })
      proofs.set(txHash, proof)
      // A full block with many anchors takes seconds, so other work must be able to run in between.
      await nextTurn()
    }
    await blocks.save(found)
    return proofs
  }

  return {
    prove(hash) {
      const known = waiting.get(hash)
      if (known !== undefined) return known
      const failed = unreadable.get(hash)
      if (failed !== undefined && now() - failed.atMs < UNREADABLE_MS)
        return Promise.reject(failed.fault)
      if (waiting.size >= BLOCKS_WAITING_MAX) return Promise.resolve(null)
      const reading = queue.run(() => readOrRemember(hash)).finally(() => waiting.delete(hash))
      waiting.set(hash, reading)
      return reading
    },
    unreadable() {
      const last = [...unreadable.values()].at(-1)
      return { count: unreadable.size, reason: last?.fault.code ?? null }
    },
    async stop() {
      stopping.abort()
      await queue.idle()
    },
  }
}

/**
 * Throws BlockUnreadable: `not_in_block` if the block lacks the transaction; `unknown_transaction`
 * or `unknown_receipts` if the transactions or receipts do not match the header's root. Takes some
 * milliseconds for each hundred transactions.
 */
export function proveTransaction(block: RawBlock, txHash: string): BlockProof {
  const index = block.transactionHashes.indexOf(txHash)
  if (index < 0)
    throw new BlockUnreadable(
      'not_in_block',
      `expected transaction ${txHash} in block ${block.hash}`,
    )
  const header = decodeBlockHeader(block.header)
  const transactions = buildTrieProof(block.transactions, index)
  if (!equalBytes(transactions.root, header.transactionsRoot))
    throw new BlockUnreadable(
      'unknown_transaction',
      `expected all transactions of block ${block.hash}, the endpoint gave ` +
        `${block.transactions.length} that do not add up to its root`,
    )
  const receipts = buildTrieProof(block.receipts, index)
  if (!equalBytes(receipts.root, header.receiptsRoot))
    throw new BlockUnreadable(
      'unknown_receipts',
      `expected receipts that add up to the root in block ${block.hash}: they have fields that ` +
        'are not known here',
    )
  return {
    number: block.number,
    hash: block.hash,
    header: block.header,
    transactionIndex: index,
    transactionProof: transactions.nodes,
    receiptProof: receipts.nodes,
  }
}

/** All times are in milliseconds. */
type KeeperLimits = {
  readonly pauseMs: number
  /** The pause when every confirmed anchor has its proof. */
  readonly idleMs: number
  /** Pause after a failure, shortened by a random part of up to a half. */
  readonly backoff: BackOffBounds
  /** Blocks that could not be read are tried again after this time. */
  readonly retryMs: number
  /** A busy gateway delays the next block by at most `busyMaxMs`, in steps of `busyMs`. */
  readonly busyMs: number
  readonly busyMaxMs: number
}

const KEEPER_DEFAULTS: KeeperLimits = {
  // Five blocks a second are more than any public chain makes.
  pauseMs: 200,
  idleMs: 5_000,
  backoff: { minMs: 500, maxMs: 60_000 },
  retryMs: 600_000,
  busyMs: 500,
  busyMaxMs: 60_000,
}

/** After this many failures in a row, the search goes on with the next block. */
const FAILURES_PER_BLOCK_MAX = 3
const FAULT_LOG_INTERVAL_MS = 60_000

export type BlockKeeper = {
  start(): void
  /** Resolves when nothing runs. */
  stop(): Promise<void>
}

export type BlockKeeperOptions = {
  readonly blocks: Pick<AnchorBlocksStore, 'nextUnproven'>
  readonly proofs: Pick<BlockProofs, 'prove'>
  readonly chainId: number
  readonly isBusy: () => boolean
  readonly log: Logger
  /** A number from 0 to 1. Default: Math.random. */
  readonly random?: () => number
  /** Monotonic time in milliseconds. Default: performance.now. */
  readonly now?: () => number
} & Partial<KeeperLimits>

/**
 * Stores the block proofs of confirmed anchors, block by block. A restart loses nothing, and an
 * error never ends the loop. Unreadable blocks are tried again later. Several gateways on one
 * database do double work, without harm.
 */
export function createBlockKeeper(options: BlockKeeperOptions): BlockKeeper {
  const { blocks, proofs, chainId, isBusy, log } = options
  const { random = Math.random, now = () => performance.now() } = options
  const limits = { ...KEEPER_DEFAULTS, ...options }
  const faults = createFaultLog(FAULT_LOG_INTERVAL_MS, now)
  /** The next search begins after this block. */
  let after: BlockPlace | null = null
  /** When this pass first skipped a block. Null if it skipped no block. */
  let leftAt: number | null = null
  let failures = 0

  async function letCallsPass(signal: AbortSignal): Promise<void> {
    const { busyMs, busyMaxMs } = limits
    for (let waitedMs = 0; waitedMs < busyMaxMs && isBusy(); waitedMs += busyMs)
      await pause(busyMs, signal)
  }

  async function findNext(): Promise<BlockPlace | null> {
    const isRetryDue = leftAt === null || now() - leftAt >= limits.retryMs
    const next = await blocks.nextUnproven(chainId, after)
    if (next !== null || after === null || !isRetryDue) return next
    after = null
    leftAt = null
    return blocks.nextUnproven(chainId, null)
  }

  async function prove(place: BlockPlace): Promise<void> {
    const found = await proofs.prove(place.hash)
    after = place
    if (found !== null && found.size > 0) return
    // A reorganisation is not recorded yet, or the endpoint does not have the block yet.
    leftAt ??= now()
    log.debug({ block: place.number, hash: place.hash }, 'block of confirmed anchors not found')
  }

  /** Returns the pause after the error, milliseconds. */
  function recover(error: unknown, place: BlockPlace | null): number {
    failures += 1
    if (faults.isDue())
      log.warn(
        { err: error, block: place?.number ?? null },
        'block proofs could not be stored; tried again',
      )
    const isPassedOver = error instanceof BlockUnreadable || failures % FAILURES_PER_BLOCK_MAX === 0
    if (place !== null && isPassedOver) {
      after = place
      leftAt ??= now()
    }
    return backOffMs(failures, limits.backoff, { jitter: 'half', random })
  }

  return createLoop(async (signal) => {
    let place: BlockPlace | null = null
    try {
      await letCallsPass(signal)
      place = await findNext()
      if (place !== null && !signal.aborted) await prove(place)
      failures = 0
      return place === null ? limits.idleMs : limits.pauseMs
    } catch (error) {
      return signal.aborted ? 0 : recover(error, place)
    }
  })
}
