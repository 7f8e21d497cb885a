import { PolicyError } from '../../attestation/nitro/policy.ts'
import {
  type ProviderPolicy,
  parseProviderPolicy,
} from '../../attestation/providers/evidence/provider-policy.ts'
import { printable } from '../../attestation/report/printable.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'
import { readSource } from './files.ts'

/** Largest policy of a provider, bytes. Lists of measurements of many machines fit. */
const POLICY_BYTES_MAX = 1024 * 1024

/** Reads the policy file of a provider. Throws CliError with the name of the file. */
export async function openProviderPolicy(file: string): Promise<ProviderPolicy> {
  const bytes = await readSource(file, { bytesMax: POLICY_BYTES_MAX })
  return convertFault(
    () => parseProviderPolicy(bytes),
    PolicyError,
    ({ message }) => new CliError(`${printable(file)}: ${printable(message)}`, EXIT_CODES.usage),
  )
}
