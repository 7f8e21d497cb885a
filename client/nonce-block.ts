import { attempt } from '#attestation/finding.ts'
import {
  type LookedUpBlock,
  parseProviderEvidence,
} from '#attestation/providers/evidence/evidence-document.ts'
import { readChainFacts } from './chain-facts.ts'
import type { Rpc } from './rpc.ts'

/**
 * Looks up the block that attacker-controlled evidence of a provider names. Null: the evidence
 * names no block, or is not evidence. Throws RpcError.
 */
export async function lookUpNonceBlock(
  rpc: Rpc,
  evidence: Uint8Array,
): Promise<LookedUpBlock | null> {
  const parsed = attempt(() => parseProviderEvidence(evidence))
  const number = 'value' in parsed ? (parsed.value.block?.number ?? null) : null
  if (number === null) return null
  const { chainId, providerBlock = null } = await readChainFacts(rpc, {
    anchor: null,
    provider: number,
    chainId: null,
  })
  return { chainId, block: providerBlock }
}
