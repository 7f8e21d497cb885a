import { addressOf } from '../account.ts'
import { decodeBase64, decodeHex } from '../bytes.ts'
import type { Json } from '../json/value.ts'
import { decodeAttestationPayload } from '../nitro/document.ts'
import { verifyRecord } from '../verify-record.ts'
import { checkAnchor, headerOf } from './anchor-checks.ts'
import { digestBootConfiguration } from './boot-configuration.ts'
import { type BundleRecord, type EvidenceBundle, parseEvidenceBundle } from './bundle.ts'
import {
  BUNDLE_CHECKS,
  type BundleCheck,
  type BundleCheckName,
  type BundleFacts,
  type BundleReport,
  judgeChecks,
} from './bundle-report.ts'
import { checkEnclave } from './enclave-checks.ts'
import { attempt, reasonOf } from './finding.ts'
import type { BundleContext, BundlePolicy } from './policy.ts'
import { redactedParts } from './redact-bundle.ts'

/**
 * Checks all that an evidence bundle shows, with no network and no clock. `json` is attacker-controlled: read its
 * text with parseExactJson. Never rejects for anything in the bundle: what is missing or malformed fails the check
 * it is needed for. Rejects with PolicyError when the policy makes no sense.
 *
 * Does NOT prove: that the provider ran the model it names, or that the answer is true; that the block is one of
 * the chain, unless `context.chain` is given; when the completion was made, but for "not after the block" then;
 * that the notary signed no other history of the same log (compare its heads on the chain); that the relayer is
 * anyone in particular.
 */
export async function verifyBundle(
  json: Json,
  policy: BundlePolicy,
  context: BundleContext = {},
): Promise<BundleReport> {
  const { chain, attestations } = context
  const parsed = attempt(() => parseEvidenceBundle(json))
  if ('fault' in parsed) return refuseFormat(parsed.fault)
  const bundle = parsed.value
  const checks = inOrder([
    { name: 'format', outcome: 'passed', detail: `version ${bundle.version}` },
    ...checkRecord(bundle.record),
    ...(await checkEnclave(bundle, policy, attestations)),
    ...checkAnchor(bundle, { chain, confirmationsMin: policy.confirmationsMin }),
  ])
  const judgement = judgeChecks(checks, chain !== undefined)
  return {
    ...judgement,
    checks,
    redacted: redactedParts(bundle.record),
    facts: judgement.verdict === 'invalid' ? null : gatherFacts(bundle, checks),
  }
}

const CHECK_NAMES = Object.keys(BUNDLE_CHECKS) as readonly BundleCheckName[]

function inOrder(checks: readonly BundleCheck[]): readonly BundleCheck[] {
  return CHECK_NAMES.map((name) => {
    const made = checks.find((one) => one.name === name)
    // A check that is in the table and was not made must not look like one that is not needed.
    return made ?? { name, outcome: 'failed', detail: 'this check was not made' }
  })
}

/** The checks of a record by itself; the anchor, which those leave open, is checked here. */
function checkRecord(record: BundleRecord): readonly BundleCheck[] {
  const withheld = {
    ...('request' in record ? {} : { request: record.request_hash }),
    ...('response' in record ? {} : { response: record.response_hash }),
  }
  return verifyRecord(record, { withheld }).checks.filter(({ name }) => name !== 'anchor')
}

function refuseFormat(fault: unknown): BundleReport {
  const checks = CHECK_NAMES.map(
    (name): BundleCheck =>
      name === 'format'
        ? { name, outcome: 'failed', detail: reasonOf(fault) }
        : { name, outcome: 'not checked', detail: 'the bundle has not the form of one' },
  )
  return { ...judgeChecks(checks, true), checks, redacted: [], facts: null }
}

function gatherFacts(bundle: EvidenceBundle, checks: readonly BundleCheck[]): BundleFacts {
  const { record, boot_configuration } = bundle
  const isOnChain = checks.some(({ name, outcome }) => name === 'block on chain' && outcome === 'passed')
  const { number, hash, timestamp } = isOnChain ? headerOf(bundle) : NO_BLOCK
  return {
    hash: record.hash,
    notary: addressOf(decodeHex(record.public_key)),
    index: record.receipt.index,
    finishedAt: record.created_at,
    measurements: decodeAttestationPayload(decodeBase64(record.attestation)).pcrs,
    configuration: digestBootConfiguration(boot_configuration),
    anchoredIn: isOnChain ? { number, hash, timestamp } : null,
  }
}

const NO_BLOCK = { number: 0, hash: '', timestamp: 0 }
