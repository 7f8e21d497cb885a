import { type BlockRange, findFirstBlock } from '../../chain/chain-reads.ts'
import type { ChainSource } from './chain-source.ts'

/**
 * Gives the block in which the contract was made: a search of about 25 questions. Null when the
 * endpoint keeps no state of blocks that old. Throws ChainFault.
 */
export async function findDeployment(
  chain: Pick<ChainSource, 'hadCode'>,
  contract: string,
  toBlock: number,
): Promise<number | null> {
  return await findFirstBlock({ fromBlock: 0, toBlock }, (block) => chain.hadCode(contract, block))
}

/**
 * Gives the hash and block of the transaction that took a nonce of an account, which happened in
 * the range; no hash when that block has none of the account's with it. Null when the endpoint
 * keeps no state of blocks that old. Throws ChainFault.
 */
export async function findSent(
  chain: Pick<ChainSource, 'countSent' | 'findInBlock'>,
  sent: { readonly from: string; readonly nonce: number },
  range: BlockRange,
): Promise<{ readonly txHash: string | null; readonly block: number } | null> {
  const block = await findFirstBlock(range, async (at) => {
    const count = await chain.countSent(sent.from, at)
    return count === null ? null : count > sent.nonce
  })
  if (block === null) return null
  return { txHash: await chain.findInBlock(block, sent), block }
}
