import { keccak_256 } from '@noble/hashes/sha3.js'
import { addressOf } from '../account.ts'
import { decodeBase64, decodeHex, encodeHex, equalBytes } from '../bytes.ts'
import { ProofError } from '../errors.ts'
import { attempt, check, type Finding, need } from '../finding.ts'
import { decodeAttestationPayload } from '../nitro/document.ts'
import { type AnchorTransaction, decodeAnchorTransaction } from './anchor-transaction.ts'
import {
  type BlockHeader,
  decodeBlockHeader,
  decodeTransactionReceipt,
  hasAnchoredEvent,
} from './block.ts'
import type { BundleBlock, EvidenceBundle, NoBlockReason } from './bundle.ts'
import type { BundleCheck, BundleCheckName } from './bundle-checks.ts'
import { type ChainFacts, CONFIRMATIONS_MIN_DEFAULT } from './policy.ts'
import { verifyTrieProof } from './trie.ts'

/** Checks that the transaction anchors the log's head, is in the block, and succeeded. */
export function checkAnchor(
  bundle: EvidenceBundle,
  given: { readonly chain: ChainFacts | undefined; readonly confirmationsMin: number | undefined },
): readonly BundleCheck[] {
  const { block, transaction: raw } = bundle
  const bytes = raw === null ? null : decodeHex(raw)
  const orUnknown = (find: (bytes: Uint8Array) => Finding) => () =>
    bytes === null ? { notChecked: 'the transaction is not known yet' } : find(bytes)
  const header = attempt(() => headerOf(bundle))
  const checkMined = (name: BundleCheckName, find: (mined: BundleBlock) => Finding) =>
    check(name, () => (block === null ? { notChecked: 'there is no block' } : find(block)))
  return [
    check(
      'transaction hash',
      orUnknown((transaction) => checkTransactionHash(bundle, transaction)),
    ),
    check(
      'anchor',
      orUnknown((transaction) => checkCall(bundle, decodeAnchorTransaction(transaction))),
    ),
    check('block header', () =>
      block === null ? { notChecked: sayNoBlock(bundle) } : checkHeader(block, need(header)),
    ),
    checkMined('anchor time', () => checkAnchorTime(bundle, need(header))),
    checkMined('transaction in block', (mined) => checkInclusion(bundle, mined, need(header))),
    checkMined('anchor outcome', (mined) => checkOutcome(bundle, mined, need(header))),
    checkMined('block on chain', ({ number, hash }) =>
      checkBlockOnChain({ chainId: bundle.record.log.chain_id, number, hash }, given),
    ),
  ]
}

/** Throws ProofError `no_block` if the bundle has no block. */
export function headerOf(bundle: EvidenceBundle): BlockHeader {
  if (bundle.block === null) throw new ProofError('no_block', 'there is no block')
  return decodeBlockHeader(decodeHex(bundle.block.header))
}

/** The gateway's reason for the missing block, and what the reader can do. */
export function sayNoBlock({
  no_block,
  record,
  transaction: anchor,
}: Pick<EvidenceBundle, 'no_block' | 'record' | 'transaction'>): string {
  if (anchor === null) return 'this was kept before its anchor was in a block: complete it'
  const { reason = 'not_said', transaction = record.reanchored?.at(-1) ?? record.tx_hash } =
    no_block ?? {}
  return `${NO_BLOCK_WORDS[reason]}, or look transaction ${transaction} up on the chain`
}

const NO_BLOCK_WORDS: Readonly<Record<NoBlockReason | 'not_said', string>> = {
  not_said: 'the bundle has no block and does not say why: ask for a newer one',
  not_mined:
    'the gateway says that the transaction was in no block when it made the bundle: ask for a newer one',
  not_read: 'the gateway says that it did not read the block in time: ask for a newer bundle',
  not_readable:
    'the gateway says that it cannot read the block that the transaction is in, ' +
    'a fault that its operator must repair: ask for a bundle later',
}

/**
 * Tolerance, milliseconds: the block's time may be this much earlier than the completion. A block's
 * time is the start of its slot (on Ethereum, up to 12 s before the last transaction of the block),
 * and clocks differ.
 */
export const ANCHOR_SKEW_MS = 60_000

/** Compares only hashes. The check `anchor` reads the transaction. */
function checkTransactionHash({ record }: EvidenceBundle, transaction: Uint8Array): Finding {
  const hash = `0x${encodeHex(keccak_256(transaction))}`
  if (record.tx_hash === hash) return `Keccak-256 ${hash}`
  const { reanchored = [] } = record
  const at = reanchored.indexOf(hash)
  if (at < 0) {
    const places = reanchored.length === 0 ? 'tx_hash' : 'tx_hash, or one of reanchored,'
    const message = `expected ${places} to be the transaction's hash, ${hash}`
    throw new ProofError('wrong_transaction', message)
  }
  const place = `${at + 1} of ${reanchored.length}, in the place of tx_hash ${record.tx_hash}`
  return `Keccak-256 ${hash}: reanchored, ${place}`
}

function checkCall({ record }: EvidenceBundle, transaction: AnchorTransaction): Finding {
  const { log } = record
  const { call, chainId, contract, relayer } = transaction
  if (chainId !== log.chain_id) throw wrongAnchor(`on chain ${log.chain_id}`)
  if (contract !== log.contract) throw wrongAnchor(`to the contract ${log.contract}`)
  if (call.size !== log.size) throw wrongAnchor(`of a head of size ${log.size}`)
  if (encodeHex(call.root) !== log.root) throw wrongAnchor(`of a head with the root ${log.root}`)
  if (`0x${encodeHex(call.signature)}` !== log.signature)
    throw wrongAnchor("with the head's signature")
  return `brings the head of size ${log.size} to ${contract} on chain ${chainId}; paid by ${relayer}`
}

function checkHeader({ number, hash }: BundleBlock, header: BlockHeader): Finding {
  if (number !== header.number)
    throw new ProofError(
      'wrong_block',
      `expected the block's number to be the header's, ${header.number}`,
    )
  if (hash !== header.hash)
    throw new ProofError(
      'wrong_block',
      `expected the block's hash to be the header's, ${header.hash}`,
    )
  return `block ${number}, ${hash}`
}

/** Refuses a block older than the completion. The block would date the completion too early. */
function checkAnchorTime({ record }: EvidenceBundle, { timestamp }: BlockHeader): Finding {
  const documentMs = decodeAttestationPayload(decodeBase64(record.attestation)).timestampMs
  const blockMs = timestamp * 1000
  for (const [what, timeMs] of [
    ['the completion finished', record.receipt.finished_at],
    ['the attestation document was made', documentMs],
  ] as const)
    if (blockMs + ANCHOR_SKEW_MS < timeMs)
      throw new ProofError(
        'wrong_time',
        `expected a block made after ${what}, less ${ANCHOR_SKEW_MS} ms: it is ${timeMs - blockMs} ms older`,
      )
  return `made at Unix second ${timestamp}, not before completion and document`
}

function checkInclusion(
  { transaction }: EvidenceBundle,
  block: BundleBlock,
  header: BlockHeader,
): Finding {
  const entry = verifyTrieProof({
    root: header.transactionsRoot,
    index: block.transaction_index,
    nodes: block.transaction_proof.map(decodeHex),
  })
  if (transaction === null || !equalBytes(entry, decodeHex(transaction)))
    throw new ProofError('wrong_transaction', 'expected the transaction at its index of the block')
  return `transaction ${block.transaction_index} of the block`
}

function checkOutcome(
  { record }: EvidenceBundle,
  block: BundleBlock,
  header: BlockHeader,
): Finding {
  const entry = verifyTrieProof({
    root: header.receiptsRoot,
    index: block.transaction_index,
    nodes: block.receipt_proof.map(decodeHex),
  })
  const receipt = decodeTransactionReceipt(entry)
  if (!receipt.hasSucceeded)
    throw new ProofError('anchor_reverted', 'expected the transaction to have succeeded')
  const { contract, size, root } = record.log
  const notary = addressOf(decodeHex(record.public_key))
  if (!hasAnchoredEvent(receipt, { contract, notary, head: { size, root: decodeHex(root) } }))
    throw new ProofError(
      'no_anchored_event',
      'expected the event of the contract for this notary and head',
    )
  return `succeeded; ${contract} took the head of ${notary}`
}

function wrongAnchor(expectation: string): ProofError {
  return new ProofError('wrong_anchor', `expected a transaction ${expectation}`)
}

/**
 * Checks that the chain has this block and enough blocks after it. `hash`: 0x, lower case. Throws
 * ProofError. Does NOT prove that the facts in `chain` are true.
 */
export function checkBlockOnChain(
  block: { readonly chainId: number; readonly number: number; readonly hash: string },
  given: { readonly chain: ChainFacts | undefined; readonly confirmationsMin: number | undefined },
): Finding {
  const { chain, confirmationsMin = CONFIRMATIONS_MIN_DEFAULT } = given
  if (chain === undefined)
    return { notChecked: `offline; look up that block ${block.number} has the hash ${block.hash}` }
  if (chain.chainId !== block.chainId)
    return {
      notChecked: `the evidence is of chain ${block.chainId}, but chain ${chain.chainId} was asked`,
    }
  if (chain.blockHash === null)
    throw new ProofError('not_on_chain', `expected the chain to have a block ${block.number}`)
  if (chain.blockHash.toLowerCase() !== block.hash)
    throw new ProofError(
      'not_on_chain',
      `expected block ${block.number} to be ${block.hash}, got ${chain.blockHash}`,
    )
  const confirmations = chain.newestBlock - block.number + 1
  if (confirmations < confirmationsMin)
    return { notChecked: `${confirmations} of ${confirmationsMin} confirmations: check it later` }
  return `${confirmations} confirmations`
}
