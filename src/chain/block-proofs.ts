import { setImmediate as nextTurn } from 'node:timers/promises'
import type { AnchorBlocksStore, AnchorProof } from './anchor-blocks-store.ts'
import { type BlockProof, proveTransaction } from './prove-transaction.ts'
import type { RawBlock } from './read-block.ts'

/** Blocks that wait to be read, or are; one at a time is, since each is some megabytes for us and for the endpoint. */
export const BLOCKS_WAITING_MAX = 8

/** Reads blocks and keeps the proofs of our anchors in them. */
export type BlockProofs = {
  /**
   * Reads the block with this hash once, however many ask for it meanwhile, stores the proofs of all anchors that are
   * seen in it, and gives them by transaction hash; null when the chain does not know the block, and when
   * BLOCKS_WAITING_MAX others wait. Rejects with what reading (RpcError, BlockUnreadable) and storing throw.
   */
  prove(blockHash: string): Promise<ProofsByHash | null>
  /** Breaks off what is being read, and resolves when nothing is. */
  stop(): Promise<void>
}

/** Proofs by the hash of their transactions, 0x, lower case. */
export type ProofsByHash = ReadonlyMap<string, BlockProof>

/** Block proofs over the store and a way to fetch a block: null when there is none with the hash. */
export function createBlockProofs(options: {
  readonly blocks: Pick<AnchorBlocksStore, 'listInBlock' | 'save'>
  readonly fetchBlock: (hash: string, signal: AbortSignal) => Promise<RawBlock | null>
}): BlockProofs {
  const { blocks, fetchBlock } = options
  const stopping = new AbortController()
  const waiting = new Map<string, Promise<ProofsByHash | null>>()
  let last: Promise<unknown> = Promise.resolve()

  async function read(hash: string): Promise<ProofsByHash | null> {
    stopping.signal.throwIfAborted()
    const block = await fetchBlock(hash, stopping.signal)
    if (block === null) return null
    const found: AnchorProof[] = []
    const proofs = new Map<string, BlockProof>()
    for (const { relayer, nonce, txHash } of await blocks.listInBlock(hash, block.transactionHashes)) {
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
      const reading = last.then(() => read(hash)).finally(() => waiting.delete(hash))
      waiting.set(hash, reading)
      last = reading.catch(() => undefined)
      return reading
    },
    async stop() {
      stopping.abort()
      await last
    },
  }
}
