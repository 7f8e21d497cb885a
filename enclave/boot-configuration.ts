import { createHash } from 'node:crypto'
import { canonicalizeJson } from '../attestation/json/canonical.ts'
import type { EnclaveConfig } from './config.ts'
import { type BootConfiguration, PROTOCOL_VERSION } from './protocol/messages.ts'

/** What of the configuration a relying party must know: the attestation document names its digest. */
export function bootConfiguration(
  config: Pick<EnclaveConfig, 'providers' | 'cas' | 'chainId' | 'contract'>,
): BootConfiguration {
  return {
    protocol_version: PROTOCOL_VERSION,
    providers: config.providers,
    ca_sha256: config.cas.sha256,
    chain_id: config.chainId,
    contract: config.contract,
  }
}

/** The document's `user_data`: SHA-256 of the RFC 8785 text of the boot configuration, 32 bytes. */
export function digestBootConfiguration(boot: BootConfiguration): Uint8Array {
  const providers = boot.providers.map(({ name, origin, path, models }) => ({ name, origin, path, models }))
  return createHash('sha256')
    .update(canonicalizeJson({ ...boot, providers }))
    .digest()
}
