import { PolicyError } from '#attestation/nitro/policy.ts'
import {
  type ProviderPolicy,
  parseProviderPolicy,
} from '#attestation/providers/evidence/provider-policy.ts'
import { printable } from '#attestation/report/printable.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'
import { readSource, refuseUrl } from './files.ts'

/** Bytes. Lists of measurements of many machines fit. */
const POLICY_BYTES_MAX = 1024 * 1024

/** Throws CliError, also for a URL. */
export async function openProviderPolicy(file: string): Promise<ProviderPolicy> {
  refuseUrl(file, 'the policy for a provider: expected a file')
  const bytes = await readSource(file, { bytesMax: POLICY_BYTES_MAX })
  const toError = ({ message }: PolicyError) =>
    new CliError(`${printable(file)}: ${printable(message)}`, EXIT_CODES.usage)
  return convertFault(() => parseProviderPolicy(bytes), PolicyError, toError)
}
