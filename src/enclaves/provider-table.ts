import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import type { EnclavePool } from './enclave-pool.ts'

/** Joins the provider tables of all enclaves in use. */
export function providersOf(enclaves: Pick<EnclavePool, 'identities'>): readonly ProviderEntry[] {
  return enclaves.identities().flatMap(({ boot_configuration: boot }) => boot.providers)
}
