import { decodeBase64, encodeHex, equalBytes } from '../bytes.ts'
import { ProofError } from '../errors.ts'
import { type AttestationDocument, decodeAttestationPayload } from '../nitro/document.ts'
import type { AttestationFacts } from '../nitro/facts.ts'
import { FUTURE_SKEW_MS_DEFAULT } from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { digestBootConfiguration, parseBootConfiguration } from './boot-configuration.ts'
import type { EvidenceBundle } from './bundle.ts'
import type { BundleCheck } from './bundle-report.ts'
import {
  checkExpectedConfiguration,
  checkExpectedMeasurements,
  describeDocument,
  verifyDocument,
} from './document-checks.ts'
import { attempt, check, type Finding, need } from './finding.ts'
import type { BundlePolicy } from './policy.ts'

/**
 * Checks which code holds the key, by the attestation document, and with which configuration it was booted. All of
 * it at the time of the document (historical mode): it is the log's anchor that shows the record to be no younger
 * than it says.
 */
export async function checkEnclave(
  bundle: EvidenceBundle,
  policy: BundlePolicy,
  attestations?: AttestationVerifier,
): Promise<readonly BundleCheck[]> {
  const bytes = attempt(() => decodeBase64(bundle.record.attestation))
  const document = attempt(() => decodeAttestationPayload(need(bytes)))
  const facts = await verifyDocument(bytes, policy, attestations)
  return [
    check('attestation document', () => describeDocument(need(facts))),
    check('attestation time', () => checkTime(bundle, need(facts))),
    check('measurements', () => checkExpectedMeasurements(document, { facts, policy })),
    check('boot configuration', () => checkBootConfiguration(bundle, need(document))),
    check('expected configuration', () =>
      checkExpectedConfiguration(digestBootConfiguration(bundle.boot_configuration), { document, policy }),
    ),
    check('provider', () => checkProvider(bundle)),
  ]
}

/** Clocks of enclave and security module may differ a little; after the leaf expired, the document shows nothing. */
function checkTime({ record }: EvidenceBundle, { timestampMs, certificates }: AttestationFacts): Finding {
  const beginMs = timestampMs - FUTURE_SKEW_MS_DEFAULT
  const endMs = Math.min(...certificates.map(({ notAfterMs }) => notAfterMs))
  const finishedMs = record.receipt.finished_at
  if (finishedMs < beginMs || finishedMs > endMs)
    throw new ProofError(
      'wrong_time',
      'expected the completion to finish after the document was made and before its certificates ended',
    )
  return `the completion finished while the document was valid, until ${new Date(endMs).toISOString()}`
}

function checkBootConfiguration(
  { boot_configuration, record }: EvidenceBundle,
  document: AttestationDocument,
): Finding {
  const digest = digestBootConfiguration(boot_configuration)
  if (document.userData === null || !equalBytes(document.userData, digest))
    throw new ProofError(
      'wrong_configuration',
      "expected the document's user_data to be the digest of the boot configuration",
    )
  const { chainId, contract } = parseBootConfiguration(boot_configuration)
  if (chainId !== record.log.chain_id || contract !== record.log.contract)
    throw new ProofError(
      'wrong_domain',
      "expected the boot configuration to name the log's chain and contract",
    )
  return `SHA-256 ${encodeHex(digest)}`
}

function checkProvider({ boot_configuration, record }: EvidenceBundle): Finding {
  const { name, origin } = record.receipt.provider
  const { providers } = parseBootConfiguration(boot_configuration)
  if (!providers.some((entry) => entry.name === name && entry.origin === origin))
    throw new ProofError(
      'wrong_provider',
      "expected the boot configuration to have the receipt's provider at its origin",
    )
  return `${name} at ${origin}`
}
