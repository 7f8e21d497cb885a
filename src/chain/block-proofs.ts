import { setImmediate as nextTurn } from 'node:timers/promises'
import { equalBytes } from '../../attestation/bytes.ts'
import { decodeBlockHeader } from '../../attestation/evidence/block.ts'
import { buildTrieProof } from '../../attestation/evidence/trie.ts'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import type { AnchorBlocksStore, AnchorProof, BlockProof } from './anchor-blocks-store.ts'
import { BlockUnreadable, type RawBlock } from './read-block.ts'

/**
 * Blocks that wait to be read, or are; one at a time is, since each is some megabytes for us and
 * for the endpoint.
 */
export const BLOCKS_WAITING_MAX = 8

/** Reads blocks and keeps the proofs of our anchors in them. */
export type BlockProofs = {
  /**
   * Reads the block with this hash once, however many ask for it meanwhile, stores the proofs of
   * all anchors that are seen in it, and gives them by transaction hash; null when the chain does
   * not know the block, and when BLOCKS_WAITING_MAX others wait. Rejects with what reading
   * (RpcError, BlockUnreadable) and storing throw.
   */
  prove(blockHash: string): Promise<ProofsByHash | null>
  /** Breaks off what is being read, and resolves when nothing is. */
  stop(): Promise<void>
}

/** Proofs by the hash of their transactions, 0x, lower case. */
type ProofsByHash = ReadonlyMap<string, BlockProof>

/**
 * Block proofs over the store and a way to fetch a block: null when there is none with the hash.
 */
export function createBlockProofs(options: {
  readonly blocks: Pick<AnchorBlocksStore, 'listInBlock' | 'save'>
  readonly fetchBlock: (hash: string, signal: AbortSignal) => Promise<RawBlock | null>
}): BlockProofs {
  const { blocks, fetchBlock } = options
  const stopping = new AbortController()
  const waiting = new Map<string, Promise<ProofsByHash | null>>()
  /** One block at a time. */
  const queue = createSerialQueue()

  async function read(hash: string): Promise<ProofsByHash | null> {
    stopping.signal.throwIfAborted()
    const block = await fetchBlock(hash, stopping.signal)
    if (block === null) return null
    const found: AnchorProof[] = []
    const proofs = new Map<string, BlockProof>()
    for (const { relayer, nonce, txHash } of await blocks.listInBlock(
      hash,
      block.transactionHashes,
    )) {
      const proof = proveTransaction(block, txHash)
      found.push({ relayer, nonce, proof })
      proofs.set(txHash, proof)
      // A full block with many anchors takes seconds: calls go on in between.
      await nextTurn()
    }
    await blocks.save(found)
    return proofs
  }

  return {
    prove(hash) {
      const known = waiting.get(hash)
      if (known !== undefined) return known
      if (waiting.size >= BLOCKS_WAITING_MAX) return Promise.resolve(null)
      const reading = queue.run(() => read(hash)).finally(() => waiting.delete(hash))
      waiting.set(hash, reading)
      return reading
    },
    async stop() {
      stopping.abort()
      await queue.idle()
    },
  }
}

/**
 * Proof of the block's transaction with this hash. Throws BlockUnreadable `not_in_block`, and
 * `unknown_transaction` or `unknown_receipts` when what was read does not add up to the header's
 * root. Takes some milliseconds per hundred transactions of the block.
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
      `expected all transactions of block ${block.hash}`,
    )
  const receipts = buildTrieProof(block.receipts, index)
  if (!equalBytes(receipts.root, header.receiptsRoot))
    throw new BlockUnreadable(
      'unknown_receipts',
      `expected receipts that add up to the root in block ${block.hash}: they have fields that are not known here`,
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
