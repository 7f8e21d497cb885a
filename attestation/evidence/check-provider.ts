import { decodeBase64 } from '../bytes.ts'
import { ProofError } from '../errors.ts'
import { attempt, check, type Finding, reasonOf } from '../finding.ts'
import { weightsOf } from '../providers/evidence/model-weights.ts'
import type { ProviderPolicy } from '../providers/evidence/provider-policy.ts'
import type { ProviderJudgement } from '../providers/evidence/verify-provider-evidence.ts'
import { refuseFailedChecks } from '../providers/provider-checks.ts'
import type { Receipt } from '../receipt.ts'
import type { EvidenceBundle } from './bundle.ts'
import type { BundleCheck, ProviderEvidenceFacts } from './bundle-checks.ts'
import type { ChainFacts, NamedBlocks } from './policy.ts'

/** Latest time of a Date, Unix milliseconds. A receipt can state a later time. */
const DATE_MS_MAX = 8.64e15

/** The time at which evidence of a receipt's provider is judged. */
export function judgedTimeOf({ finished_at }: Receipt): Date {
  return new Date(Math.min(finished_at, DATE_MS_MAX))
}

/**
 * Judges the bundle's evidence of its provider at the time of the receipt. Null without evidence.
 * Throws PolicyError for a policy that parseProviderPolicy did not return.
 */
export async function judgeProvider(
  { record, provider_evidence }: EvidenceBundle,
  policies: readonly ProviderPolicy[] | null,
  chain: ChainFacts | undefined,
): Promise<ProviderJudgement | null> {
  if (provider_evidence?.document === undefined) return null
  // Loaded only for bundles with evidence: the module is a third of the verifier's code.
  const { judgeByPolicies } = await import('../providers/evidence/judge-by-policies.ts')
  const at = judgedTimeOf(record.receipt)
  const { chainId, providerBlock } = chain ?? {}
  const lookedUp =
    chainId === undefined || providerBlock === undefined ? null : { chainId, block: providerBlock }
  return await judgeByPolicies(decodeBase64(provider_evidence.document), policies, at, lookedUp)
}

/** The blocks that a bundle names: of its anchor, and of the nonce of its provider's evidence. */
export async function namedBlocksOf(bundle: EvidenceBundle): Promise<NamedBlocks> {
  const { block, provider_evidence } = bundle
  const anchor = block?.number ?? null
  const { chain_id: chainId } = bundle.record.log
  const { document } = provider_evidence ?? {}
  if (document === undefined) return { anchor, provider: null, chainId }
  const { parseProviderEvidence } = await import('../providers/evidence/evidence-document.ts')
  const parsed = attempt(() => parseProviderEvidence(decodeBase64(document)))
  return {
    anchor,
    chainId,
    provider: 'value' in parsed ? (parsed.value.block?.number ?? null) : null,
  }
}

/**
 * The two checks of a bundle's provider. The first needs no policy: it fails if the origin or the
 * key differs, because such evidence belongs to another call. `missing`: the digest of a document
 * that is not there.
 */
export function checkProvider(
  receipt: Receipt,
  judged: ProviderJudgement | null,
  { hasPolicy, missing }: { readonly hasPolicy: boolean; readonly missing: string | null },
): readonly [BundleCheck, BundleCheck] {
  const find = (of: (judged: ProviderJudgement) => Finding) => () =>
    judged === null ? { notChecked: sayMissing(missing) } : of(judged)
  return [
    check(
      "provider's key",
      find((given) => checkKey(given, receipt)),
      sayFault,
    ),
    check(
      'provider attested',
      find((given) => checkAttested(given, hasPolicy)),
      sayFault,
    ),
  ]
}

function sayMissing(sha256: string | null): string {
  return sha256 === null
    ? 'there is no evidence of the provider'
    : `the document with the SHA-256 ${sha256} is not there: give the whole file`
}

/** Throws ProofError for evidence of another call. */
function checkKey(
  { facts, checks }: ProviderJudgement,
  { provider: { origin, tls } }: Receipt,
): Finding {
  if (facts === null) throw new ProofError('evidence_malformed', checks[0]?.detail ?? '')
  if (facts.origin !== origin)
    throw new ProofError('provider_origin', `expected evidence of ${origin}, got ${facts.origin}`)
  const binding = checks.find(({ name }) => name === 'key binding')
  if (binding?.outcome !== 'passed')
    return { notChecked: `the evidence binds no key: ${binding?.detail}` }
  const stated = facts.tlsKeys.map(({ spkiSha256 }) => spkiSha256)
  const key = tls?.spki_sha256 ?? 'no key'
  if (!stated.includes(key))
    throw new ProofError('provider_key', `expected evidence of ${key}, got ${stated.join(', ')}`)
  return `SHA-256 ${key}`
}

function checkAttested({ facts, checks }: ProviderJudgement, hasPolicy: boolean): Finding {
  if (!hasPolicy) return { notChecked: 'no policy for the provider was given' }
  const open = refuseFailedChecks(checks)
  if (open !== null) return { notChecked: open }
  const roots = facts?.hasReplacedRoots ? ', under roots of the policy: for development' : ''
  const age = facts?.blockTimeMs === null ? '; its age is not checked' : ''
  return `${facts?.kind} at ${facts?.origin}, on ${facts?.tee}${roots}${age}`
}

function sayFault(fault: unknown): string {
  return fault instanceof ProofError ? `${fault.code}: ${fault.message}` : reasonOf(fault)
}

/** Facts of judged evidence, or null. `isAccepted`: the evidence passed the policy. */
export function providerFactsOf(
  { model: { requested, returned } }: Receipt,
  judged: ProviderJudgement | null,
  isAccepted: boolean,
): ProviderEvidenceFacts | null {
  const facts = judged?.facts ?? null
  if (facts === null) return null
  return { ...facts, isAccepted, weights: weightsOf(facts.model, returned ?? requested) }
}
