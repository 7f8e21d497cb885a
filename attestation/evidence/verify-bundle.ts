import { addressOf } from '../account.ts'
import { decodeBase64, decodeHex } from '../bytes.ts'
import { compareStream, sayLost } from '../compare-exchange.ts'
import { attempt, check, reasonOf } from '../finding.ts'
import type { Json } from '../json/value.ts'
import { isDebugMode } from '../nitro/checks.ts'
import { decodeAttestationPayload } from '../nitro/document.ts'
import type { ProviderJudgement } from '../providers/evidence/verify-provider-evidence.ts'
import { verifyRecord } from '../verify-record.ts'
import { checkAnchor, headerOf } from './anchor-checks.ts'
import { digestBootConfiguration } from './boot-configuration.ts'
import { type EvidenceBundle, parseEvidenceBundle, redactedParts } from './bundle.ts'
import {
  type BlockFacts,
  BUNDLE_CHECKS,
  type BundleCheck,
  type BundleFacts,
  type BundleReport,
} from './bundle-checks.ts'
import { checkProvider, judgeProvider, providerFactsOf } from './check-provider.ts'
import { checkEnclave, checkOutcome, findExpectedCode, registersOf } from './document-checks.ts'
import { streamIn } from './kept-events.ts'
import { type BundleContext, type BundlePolicy, readContext, readPolicy } from './policy.ts'
import { isRefused, judgeChecks, orderChecks, refuseForm } from './verdict.ts'

/**
 * Checks all facts of evidence, with no network and no clock. `json` is
 * attacker-controlled: read its text with parseExactJson. Never rejects because of the bundle: a
 * missing or malformed part fails the check that needs it. Rejects with PolicyError, before any
 * check, when policy or context has a wrong form.
 *
 * Does NOT prove: that the provider ran the model it names, unless its evidence shows the weights
 * under `providers`; that the answer is true; that the block is on the chain, unless
 * `context.chain` is given; when the completion was made, except that it was not after the block;
 * that the notary signed no other history of the same log (compare its heads on the chain); who the
 * relayer is.
 *
 * @example
 * const bundle = parseExactJson(bundleFile)
 * const { verdict } = await verifyBundle(bundle, { measurements, configurations, roots })
 * console.log(verdict) // verified
 */
export async function verifyBundle(
  json: Json,
  demanded: BundlePolicy,
  context: BundleContext = {},
): Promise<BundleReport> {
  const policy = readPolicy(demanded)
  const { chain, attestations } = readContext(context)
  const { providers = null } = policy
  const hasProviderPolicy = providers !== null
  const parsed = attempt(() => parseEvidenceBundle(json))
  if ('fault' in parsed) {
    const refusal = refuseForm(BUNDLE_CHECKS, {
      subject: 'the bundle',
      detail: reasonOf(parsed.fault),
      hasProviderPolicy,
    })
    return { ...refusal, redacted: [], erased: null, source: null, providerChecks: [], facts: null }
  }
  const bundle = parsed.value
  const { receipt } = bundle.record
  const provider = await judgeProvider(bundle, providers, chain)
  const made: readonly BundleCheck[] = [
    { name: 'format', outcome: 'passed', detail: `version ${bundle.version}` },
    ...checkRecord(bundle),
    ...(await checkEnclave(bundle, policy, attestations)),
    check('outcome', () => checkOutcome(receipt, policy.outcomes)),
    ...checkProvider(receipt, provider, {
      hasPolicy: hasProviderPolicy,
      missing: bundle.provider_evidence?.sha256 ?? null,
    }),
    ...checkAnchor(bundle, { chain, confirmationsMin: policy.confirmationsMin }),
    ...checkUnanswered(bundle),
  ]
  const checks = orderChecks(
    made,
    BUNDLE_CHECKS,
    hasProviderPolicy || bundle.provider_evidence !== undefined,
  )
  const judgement = judgeChecks(checks.filter(isNotReplaced(checks)), {
    table: BUNDLE_CHECKS,
    hasChain: chain !== undefined,
    hasProviderPolicy,
  })
  return {
    ...judgement,
    checks,
    redacted: redactedParts(bundle.record),
    erased: bundle.record.erased ?? null,
    source: bundle.source ?? null,
    providerChecks: provider?.checks ?? [],
    facts: isRefused(judgement.verdict) ? null : gatherFacts(bundle, { checks, policy, provider }),
  }
}

/**
 * The events of a stream have all of its content, so `response hash` is not needed beside them: the
 * assembled response can lack its usage.
 */
function isNotReplaced(checks: readonly BundleCheck[]) {
  const isStream = checks.some(
    ({ name, outcome }) => name === 'stream hash' && outcome === 'passed',
  )
  return ({ name, outcome }: BundleCheck) =>
    !(isStream && name === 'response hash' && outcome === 'not checked')
}

function checkUnanswered({ record, unanswered }: EvidenceBundle): readonly BundleCheck[] {
  if (unanswered === undefined) return []
  return [check('other requests', () => ({ notChecked: sayLost({ ...record }, unanswered) }))]
}

/** Omits `anchor`, which checkAnchor checks. `stream hash` is there for evidence with events. */
function checkRecord(bundle: EvidenceBundle): readonly BundleCheck[] {
  const { record } = bundle
  const stream = streamIn(bundle)
  const withheld = {
    ...('request' in record ? {} : { request: record.request_hash }),
    ...('response' in record ? {} : { response: record.response_hash }),
  }
  const made = verifyRecord(record, { withheld }).checks.flatMap(({ name, ...found }) =>
    name === 'stream hash' || name === 'anchor' ? [] : [{ name, ...found }],
  )
  if (stream === null) return made
  return [...made, check('stream hash', () => compareStream({ ...record }, stream))]
}

function gatherFacts(
  bundle: EvidenceBundle,
  {
    checks,
    policy,
    provider,
  }: {
    readonly checks: readonly BundleCheck[]
    readonly policy: BundlePolicy
    readonly provider: ProviderJudgement | null
  },
): BundleFacts {
  const { record, boot_configuration } = bundle
  const { receipt } = record
  const hasPassed = (wanted: BundleCheck['name']) =>
    checks.some(({ name, outcome }) => name === wanted && outcome === 'passed')
  const block = hasPassed('anchor outcome') ? blockOf(bundle) : null
  const document = decodeAttestationPayload(decodeBase64(record.attestation))
  const matched = findExpectedCode(document, policy)
  return {
    hash: record.hash,
    notary: addressOf(decodeHex(record.public_key)),
    index: receipt.index,
    outcome: receipt.outcome,
    provider: { name: receipt.provider.name, origin: receipt.provider.origin },
    model: receipt.model,
    finishedAt: record.created_at,
    measurements: document.pcrs,
    release: matched?.release ?? null,
    matchedRegisters: registersOf(policy.measurements, matched?.matchedSet),
    isDebugMode: isDebugMode(document),
    configuration: digestBootConfiguration(boot_configuration),
    block,
    anchoredIn: hasPassed('block on chain') ? block : null,
    providerEvidence: providerFactsOf(receipt, provider, hasPassed('provider attested')),
  }
}

function blockOf(bundle: EvidenceBundle): BlockFacts {
  const { number, hash, timestamp } = headerOf(bundle)
  return { number, hash, timestamp }
}
