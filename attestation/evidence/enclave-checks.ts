import { decodeBase64, encodeHex, equalBytes } from '../bytes.ts'
import { ProofError } from '../errors.ts'
import { checkMeasurements } from '../nitro/checks.ts'
import { type AttestationDocument, decodeAttestationPayload } from '../nitro/document.ts'
import type { AttestationFacts } from '../nitro/facts.ts'
import { type AttestationPolicy, FUTURE_SKEW_MS_DEFAULT, resolvePolicy } from '../nitro/policy.ts'
import { type AttestationVerifier, verifyAttestation } from '../nitro/verify-attestation.ts'
import { digestBootConfiguration, parseBootConfiguration } from './boot-configuration.ts'
import type { EvidenceBundle } from './bundle.ts'
import type { BundleCheck } from './bundle-report.ts'
import { type Attempt, attempt, check, type Finding, need } from './finding.ts'
import type { BundlePolicy } from './policy.ts'

/**
 * Checks which code holds the key, by the attestation document, and with which configuration it was booted. All of
 * it at the time of the document (historical mode): it is the log's anchor that shows the record to be no younger
 * than it says.
 */
export async function checkEnclave(
  bundle: EvidenceBundle,
  policy: BundlePolicy,
  attestations: AttestationVerifier = { verify: verifyAttestation },
): Promise<readonly BundleCheck[]> {
  const bytes = attempt(() => decodeBase64(bundle.record.attestation))
  const document = attempt(() => decodeAttestationPayload(need(bytes)))
  const facts = await verifyDocument(bytes, policy, attestations)
  return [
    check('attestation document', () => describeDocument(need(facts))),
    check('attestation time', () => checkTime(bundle, need(facts))),
    check('measurements', () => checkExpectedMeasurements(need(document), policy)),
    check('boot configuration', () => checkBootConfiguration(bundle, need(document))),
    check('expected configuration', () => checkExpectedConfiguration(bundle, policy)),
    check('provider', () => checkProvider(bundle)),
  ]
}

async function verifyDocument(
  bytes: Attempt<Uint8Array>,
  { measurements, roots, revoked, allowDebug }: BundlePolicy,
  attestations: AttestationVerifier,
): Promise<Attempt<AttestationFacts>> {
  const demanded: AttestationPolicy = {
    measurements: measurements ?? 'any',
    mode: 'historical',
    ...(roots === undefined ? {} : { roots }),
    ...(revoked === undefined ? {} : { revoked }),
    ...(allowDebug === undefined ? {} : { allowDebug }),
  }
  resolvePolicy(demanded)
  try {
    // Which code it is has a check of its own: here, whether the document is one at all.
    const policy: AttestationPolicy = { ...demanded, measurements: 'any' }
    return { value: await attestations.verify(need(bytes), policy, UNUSED_TIME) }
  } catch (fault) {
    return { fault }
  }
}

/** Historical mode takes the document's own time. */
const UNUSED_TIME = new Date(0)

function describeDocument({ moduleId, timestampMs, isDebugMode }: AttestationFacts): Finding {
  const debug = isDebugMode ? '; IN DEBUG MODE, in which the host can read the key' : ''
  return `${moduleId} at ${new Date(timestampMs).toISOString()}${debug}`
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

function checkExpectedMeasurements(
  document: AttestationDocument,
  { measurements = [] }: BundlePolicy,
): Finding {
  if (measurements.length === 0) return { notChecked: 'no expected measurements were given' }
  const matched = checkMeasurements(document, measurements)
  return `all ${measurements[matched ?? 0]?.size ?? 0} measurements of an expected set`
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

function checkExpectedConfiguration(
  { boot_configuration }: EvidenceBundle,
  { configurations = [] }: BundlePolicy,
): Finding {
  const digest = digestBootConfiguration(boot_configuration)
  if (configurations.length === 0)
    return { notChecked: `no expected configurations were given; this one is ${encodeHex(digest)}` }
  if (!configurations.some((expected) => equalBytes(expected, digest)))
    throw new ProofError(
      'unexpected_configuration',
      `expected another configuration than ${encodeHex(digest)}`,
    )
  return 'the configuration is an expected one'
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
