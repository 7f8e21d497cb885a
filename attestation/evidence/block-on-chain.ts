import { ProofError } from '../errors.ts'
import type { Finding } from './finding.ts'
import { type ChainFacts, CONFIRMATIONS_MIN_DEFAULT } from './policy.ts'

/**
 * Checks that the chain has this block, deep enough. `hash`: 0x, lower case. Throws ProofError.
 *
 * Does NOT prove more than whoever was asked about the chain is believed.
 */
export function checkBlockOnChain(
  block: { readonly chainId: number; readonly number: number; readonly hash: string },
  given: { readonly chain: ChainFacts | undefined; readonly confirmationsMin: number | undefined },
): Finding {
  const { chain, confirmationsMin = CONFIRMATIONS_MIN_DEFAULT } = given
  if (chain === undefined)
    return { notChecked: `offline; look up that block ${block.number} has the hash ${block.hash}` }
  if (chain.chainId !== block.chainId)
    throw new ProofError('wrong_chain', `expected chain ${block.chainId}, asked ${chain.chainId}`)
  if (chain.blockHash === null)
    throw new ProofError('not_on_chain', `expected the chain to have a block ${block.number}`)
  if (chain.blockHash.toLowerCase() !== block.hash)
    throw new ProofError(
      'not_on_chain',
      `expected block ${block.number} to be ${block.hash}, got ${chain.blockHash}`,
    )
  const confirmations = chain.newestBlock - block.number + 1
  if (confirmations < confirmationsMin)
    throw new ProofError(
      'few_confirmations',
      `expected ${confirmationsMin} confirmations, got ${confirmations}`,
    )
  return `${confirmations} confirmations`
}
