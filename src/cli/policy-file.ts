import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { PolicyError } from '#attestation/nitro/policy.ts'
import type { ProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import {
  POLICY_BYTES_MAX,
  type Policy,
  parsePolicy,
  readEnclavesPolicy,
  readProviderPolicies,
} from '#attestation/report/policy-file.ts'
import { printable } from '#attestation/report/printable.ts'
import { CliError, EXIT_CODES } from './faults.ts'
import { readSource, refuseUrl } from './files.ts'

export type OpenedPolicy = {
  readonly policy: Policy
  /** Null: the policy has no `enclaves`. */
  readonly enclaves: BundlePolicy | null
  /** Null: the policy has no `providers`. */
  readonly providers: readonly ProviderPolicy[] | null
}

/** Reads and checks the file of `--policy`. Throws CliError, also for a URL. */
export async function openPolicy(
  file: string,
  options: { readonly allowDebug?: boolean } = {},
): Promise<OpenedPolicy> {
  const policy = await loadPolicy(file)
  return await withPolicyErrors(file, () => checkPolicy(policy, options))
}

/** Reads the file without a check of its parts. Throws CliError, also for a URL. */
export async function loadPolicy(file: string): Promise<Policy> {
  refuseUrl(file, '--policy: expected a file')
  const bytes = await readSource(file, { bytesMax: POLICY_BYTES_MAX })
  return await withPolicyErrors(file, async () => parsePolicy(bytes))
}

/** Throws CliError, whose message begins with `from`. */
export async function openedPolicyOf(policy: Policy, from: string): Promise<OpenedPolicy> {
  return await withPolicyErrors(from, () => checkPolicy(policy, {}))
}

async function checkPolicy(
  policy: Policy,
  options: { readonly allowDebug?: boolean },
): Promise<OpenedPolicy> {
  const enclaves = readEnclavesPolicy(policy, options)
  return { policy, enclaves, providers: await readProviderPolicies(policy) }
}

async function withPolicyErrors<Type>(from: string, read: () => Promise<Type>): Promise<Type> {
  try {
    return await read()
  } catch (fault) {
    if (!(fault instanceof PolicyError)) throw fault
    throw new CliError(`${printable(from)}: ${printable(fault.message)}`, EXIT_CODES.usage)
  }
}

/** Throws CliError for a policy that lacks `part`. */
export function requirePart<Part>(part: Part | null, name: keyof Policy, file: string): Part {
  if (part !== null) return part
  throw new CliError(`expected ${printable(file)} to have ${name}`, EXIT_CODES.usage)
}
