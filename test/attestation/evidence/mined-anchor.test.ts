import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { decodeAnchorTransaction } from '#attestation/evidence/anchor-transaction.ts'
import {
  decodeBlockHeader,
  decodeTransactionReceipt,
  hasAnchoredEvent,
} from '#attestation/evidence/block.ts'
import { buildTrieProof, verifyTrieProof } from '#attestation/evidence/trie.ts'
import { signAnchors, startTestChain, TEST_NOTARY, type TestChain } from '../../support/chain.ts'
import { type RawBlock, readBlock } from './read-block.ts'

const ANCHORS = 25

describe('a block with anchors on a real local chain', () => {
  let chain: TestChain
  let block: RawBlock
  let reverted: RawBlock

  beforeAll(async () => {
    chain = await startTestChain()
    await chain.rpc.call('evm_setAutomine', [false])
    block = await mine(await signAnchors(chain, { count: ANCHORS }))
    reverted = await mine(
      await signAnchors(chain, { count: 1, nonce: ANCHORS, signature: new Uint8Array(65) }),
    )
  }, 30_000)

  afterAll(async () => {
    await chain.dispose()
  })

  async function mine(anchors: readonly { readonly raw: string }[]): Promise<RawBlock> {
    for (const { raw } of anchors) await chain.rpc.call('eth_sendRawTransaction', [raw])
    await chain.rpc.call('evm_mine', [])
    return readBlock(chain.rpc, 'latest')
  }

  it('every anchor of a mined block is shown to be in it, with the event by which the contract took it', () => {
    const header = decodeBlockHeader(decodeHex(block.header))
    expect(header).toMatchObject({
      hash: block.hash,
      number: block.number,
      timestamp: block.timestamp,
    })
    expect(block.transactions).toHaveLength(ANCHORS)
    for (const [index, raw] of block.transactions.entries()) {
      const transactions = buildTrieProof(block.transactions.map(decodeHex), index)
      const receipts = buildTrieProof(block.receipts.map(decodeHex), index)
      const entry = verifyTrieProof({
        root: header.transactionsRoot,
        index,
        nodes: transactions.nodes,
      })
      expect(`0x${encodeHex(entry)}`).toBe(raw)
      const { call, contract, chainId, nonce } = decodeAnchorTransaction(entry)
      expect({ contract, chainId, nonce }).toEqual({
        contract: chain.contract,
        chainId: chain.chainId,
        nonce: index,
      })
      const receipt = decodeTransactionReceipt(
        verifyTrieProof({ root: header.receiptsRoot, index, nodes: receipts.nodes }),
      )
      expect(receipt.hasSucceeded).toBe(true)
      const notary = TEST_NOTARY.address.toLowerCase()
      expect(hasAnchoredEvent(receipt, { contract, notary, head: call })).toBe(true)
    }
  })

  it('a mined anchor that reverted is shown as reverted', () => {
    const header = decodeBlockHeader(decodeHex(reverted.header))
    const { nodes } = buildTrieProof(reverted.receipts.map(decodeHex), 0)
    const receipt = decodeTransactionReceipt(
      verifyTrieProof({ root: header.receiptsRoot, index: 0, nodes }),
    )
    expect(receipt).toEqual({ hasSucceeded: false, events: [] })
  })
})
