import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import type { BundleCheckName, BundleReport } from '#attestation/evidence/bundle-checks.ts'
import type { BundlePolicy } from '#attestation/evidence/policy.ts'
import { verifyBundle } from '#attestation/evidence/verify-bundle.ts'
import type { Json } from '#attestation/json/value.ts'
import { CHAIN_ID } from '../build-record.ts'
import { BOOT_CONFIGURATION, policyFor } from './build-evidence.ts'

/** Names of the checks that fail, asked of a chain that has the bundle's block. */
export async function failedOf(
  bundle: Json,
  policy: BundlePolicy = policyFor(BOOT_CONFIGURATION),
): Promise<readonly BundleCheckName[]> {
  const block = (bundle as Partial<EvidenceBundle>).block ?? null
  const chain = {
    chainId: CHAIN_ID,
    blockHash: block?.hash ?? null,
    newestBlock: (block?.number ?? 0) + 9,
  }
  return namesOf(await verifyBundle(bundle, policy, { chain }), 'failed')
}

/** Names of the checks with this outcome. */
export function namesOf(report: BundleReport, outcome: string): readonly BundleCheckName[] {
  return report.checks.filter((check) => check.outcome === outcome).map(({ name }) => name)
}

/** What a check found. */
export function detailOf(report: BundleReport, name: BundleCheckName): string {
  return report.checks.find((check) => check.name === name)?.detail ?? ''
}
