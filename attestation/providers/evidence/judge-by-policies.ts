import { attempt } from '../../finding.ts'
import { requireChecks } from '../provider-checks.ts'
import { ProviderEvidenceError } from '../provider-error.ts'
import { type LookedUpBlock, parseProviderEvidence } from './evidence-document.ts'
import type { ProviderPolicy } from './provider-policy.ts'
import { type ProviderJudgement, verifyProviderEvidence } from './verify-provider-evidence.ts'

/**
 * Judges evidence as verifyProviderEvidence does, under the policies for its kind and origin.
 * Returns the first judgement that accepts it, else the first judgement. If no policy is for its
 * kind and origin, its check "provider" fails. An empty list or null: no policy. `policy` is the
 * policy of this judgement.
 */
export async function judgeByPolicies(
  bytes: Uint8Array,
  policies: readonly ProviderPolicy[] | null,
  at: Date,
  lookedUp: LookedUpBlock | null = null,
): Promise<ProviderJudgement & { readonly policy: ProviderPolicy | null }> {
  const [first = null, ...others] = fittingPolicies(bytes, policies ?? [])
  const judge = async (policy: ProviderPolicy | null) => ({
    ...(await verifyProviderEvidence(bytes, policy, at, lookedUp)),
    policy,
  })
  const judged = await judge(first)
  if (isAccepted(judged)) return judged
  for (const policy of others) {
    const other = await judge(policy)
    if (isAccepted(other)) return other
  }
  return judged
}

/** One policy at least, if there is one, so that the judgement says what the policies accept. */
function fittingPolicies(
  bytes: Uint8Array,
  policies: readonly ProviderPolicy[],
): readonly ProviderPolicy[] {
  const parsed = attempt(() => parseProviderEvidence(bytes))
  if ('fault' in parsed) return policies.slice(0, 1)
  const { kind, origin } = parsed.value
  const ofOrigin = policies.filter(({ origins }) => origins.includes(origin))
  const fitting = ofOrigin.filter((policy) => policy.kind === kind)
  return fitting.length > 0 ? fitting : [...ofOrigin, ...policies].slice(0, 1)
}

function isAccepted({ checks }: ProviderJudgement): boolean {
  const required = attempt(() => requireChecks(checks))
  if ('value' in required) return true
  if (required.fault instanceof ProviderEvidenceError) return false
  throw required.fault
}
