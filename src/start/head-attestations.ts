import { createRecentBlocks } from '../chain/chain-reads.ts'
import type { GatewayConfig } from '../config.ts'
import type { EnclaveEndpoint } from '../enclaves/enclave-endpoint.ts'
import type { Logger } from '../observability/logger.ts'
import type { Committer } from '../verified/committer.ts'
import { createHeadAttestations, type HeadAttestations } from '../verified/head-attestations.ts'
import type { HeadAttestationsStore } from '../verified/head-attestations-store.ts'
import type { Chain } from './chain.ts'

/**
 * Starts to have an enclave's log attested, over blocks of the contract's time that have the
 * configured confirmations.
 */
export function startHeadAttestations(
  { headAttestationIntervalMs: intervalMs, confirmations }: GatewayConfig,
  {
    chain: { rpc, contract },
    ...parts
  }: {
    readonly chain: Chain
    readonly enclave: EnclaveEndpoint
    readonly committer: Committer
    readonly store: HeadAttestationsStore
    readonly log: Logger
  },
): HeadAttestations {
  const attestations = createHeadAttestations({
    ...parts,
    fetchBlock: createRecentBlocks({ rpc, contract, confirmations }),
    intervalMs,
    now: () => performance.now(),
  })
  attestations.start()
  return attestations
}
