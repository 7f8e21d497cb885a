import { equalBytes } from '../../attestation/bytes.ts'
import { decodeBlockHeader } from '../../attestation/evidence/block-header.ts'
import { buildTrieProof } from '../../attestation/evidence/build-trie.ts'
import { BlockUnreadable, type RawBlock } from './read-block.ts'

/** That a transaction and its receipt are in a block, as bundles carry it (attestation/evidence, Format). */
export type BlockProof = {
  readonly number: number
  /** 0x, lower case. */
  readonly hash: string
  /** RLP. */
  readonly header: Uint8Array
  readonly transactionIndex: number
  /** Nodes of the transactions trie, root to leaf. */
  readonly transactionProof: readonly Uint8Array[]
  /** Nodes of the receipts trie, root to leaf. */
  readonly receiptProof: readonly Uint8Array[]
}

/**
 * Proof of the block's transaction with this hash. Throws BlockUnreadable `not_in_block`, and `unknown_transaction` or
 * `unknown_receipts` when what was read does not add up to the header's root. Takes some milliseconds per hundred
 * transactions of the block.
 */
export function proveTransaction(block: RawBlock, txHash: string): BlockProof {
  const index = block.transactionHashes.indexOf(txHash)
  if (index < 0)
    throw new BlockUnreadable('not_in_block', `expected transaction ${txHash} in block ${block.hash}`)
  const header = decodeBlockHeader(block.header)
  const transactions = buildTrieProof(block.transactions, index)
  if (!equalBytes(transactions.root, header.transactionsRoot))
    throw new BlockUnreadable('unknown_transaction', `expected all transactions of block ${block.hash}`)
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
