import type { EnclaveConfig } from './config.ts'
import { type BootConfiguration, PROTOCOL_VERSION } from './protocol/messages.ts'

/**
 * What of the configuration a relying party must know: the attestation document names its digest
 * (digestBootConfiguration). Of a provider it has the members of the protocol and no others.
 */
export function bootConfiguration(
  config: Pick<EnclaveConfig, 'providers' | 'cas' | 'chainId' | 'contract'>,
): BootConfiguration {
  return {
    protocol_version: PROTOCOL_VERSION,
    providers: config.providers.map(({ name, origin, path, models }) => ({ name, origin, path, models })),
    ca_sha256: config.cas.sha256,
    chain_id: config.chainId,
    contract: config.contract,
  }
}
