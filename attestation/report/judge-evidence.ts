import type { AskChain, BundlePolicy } from '../evidence/policy.ts'
import type { AttestationPolicy } from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { ownMembers } from '../own-members.ts'
import type { ProviderPolicy } from '../providers/evidence/provider-policy.ts'
import type { Receipt } from '../receipt.ts'
import { type SessionReport, verifySession } from '../session/verify-session.ts'
import { type BundleJudgement, judgeBundle } from './judge-bundle.ts'
import { judgeRecord, type SubjectReport, verdictOf } from './judge-record.ts'
import { type Evidence, EvidenceError, type KeptFiles, keptOf } from './read-evidence.ts'
import { isOtherRoot } from './unknown-root.ts'

export type ExpectedEvidence = {
  /**
   * The policy for attestation documents. A policy without measurements and releases refuses every
   * document.
   */
  readonly attestation: AttestationPolicy
  /** True if documents must match expectations. If false, a record's document is not checked. */
  readonly isAttestationDemanded: boolean
  /** Digests of boot configurations, 32 bytes each. Only bundles contain a boot configuration. */
  readonly configurations: readonly Uint8Array[]
  /** Minimum number of blocks, counted from the anchor's block. Null: the default. */
  readonly confirmationsMin: number | null
  /** Outcomes that are accepted for incomplete answers. Null: the default. */
  readonly outcomes: readonly Receipt['outcome'][] | null
  /** Null: the evidence about the provider's machine is not judged. */
  readonly providers: readonly ProviderPolicy[] | null
}

export type EvidenceJudgement = EvidenceFindings & {
  /** True if the reader accepts a root that is not AWS's. */
  readonly hasOtherRoot: boolean
}

export type EvidenceFindings =
  | ({ readonly kind: 'bundle' } & BundleJudgement)
  | {
      readonly kind: 'records'
      readonly verdict: BundleJudgement['verdict']
      readonly records: readonly SubjectReport[]
    }
  | ({ readonly kind: 'session' } & SessionReport)

/**
 * Judges evidence of any kind by the expectations, and compares it with the kept exchange. Skips
 * expectations for members that a record does not have. Throws EvidenceError, and errors of
 * `verifier` and `askChain`. Never throws because of the evidence. For what this proves, see
 * verifyBundle and verifyRecord.
 */
export async function judgeEvidence(
  evidence: Evidence,
  demands: {
    readonly expected: ExpectedEvidence
    readonly kept: KeptFiles
    readonly verifier: AttestationVerifier
    /** If null, no chain is used. */
    readonly askChain: AskChain | null
  },
): Promise<EvidenceJudgement> {
  const { expected, kept, verifier, askChain } = demands
  const hasOtherRoot = isOtherRoot(expected.attestation.roots)
  if (evidence.kind === 'bundle') {
    const policy = bundlePolicyOf(expected)
    const judged = await judgeBundle(evidence.bundle, {
      policy,
      verifier,
      kept: keptOf(kept),
      askChain,
    })
    return { kind: 'bundle', hasOtherRoot, ...judged }
  }
  checkComparable(evidence, kept)
  if (evidence.kind === 'session') {
    const context = { attestations: verifier, ...(askChain === null ? {} : { askChain }) }
    const report = await verifySession(evidence.calls, bundlePolicyOf(expected), context)
    return { kind: 'session', hasOtherRoot, ...report }
  }
  const { subjects } = evidence
  const records = await Promise.all(
    subjects.map((subject) =>
      judgeRecord(subject, {
        policy: expected.isAttestationDemanded ? expected.attestation : null,
        allowOutcome: expected.outcomes ?? [],
        verifier,
        kept: keptOf(kept),
      }),
    ),
  )
  return { kind: 'records', hasOtherRoot, verdict: verdictOf(records), records }
}

/**
 * Makes the policy for bundles. Leaves out each member without an expectation, and measurements
 * `'any'`.
 */
export function bundlePolicyOf(expected: ExpectedEvidence): BundlePolicy {
  const { configurations, confirmationsMin, outcomes, providers } = expected
  const { measurements, releases, roots, allowDebug } = ownMembers(expected.attestation)
  return {
    ...(measurements === 'any' ? {} : { measurements }),
    ...(releases === undefined ? {} : { releases }),
    ...(roots === undefined ? {} : { roots }),
    ...(allowDebug === undefined ? {} : { allowDebug }),
    ...(confirmationsMin === null ? {} : { confirmationsMin }),
    ...(outcomes === null ? {} : { outcomes }),
    ...(providers === null ? {} : { providers }),
    configurations,
  }
}

/**
 * Throws EvidenceError if a kept request or answer is passed with several records, or a kept answer
 * with evidence that is an answer.
 */
function checkComparable(
  evidence: Exclude<Evidence, { kind: 'bundle' }>,
  { requestBody, answer }: KeptFiles,
): void {
  if (requestBody === null && answer === null) return
  if (evidence.kind === 'session' || evidence.subjects.length > 1)
    throw new EvidenceError(
      'several_records',
      'expected one record with a request or an answer, got several',
    )
  if (answer !== null && evidence.subjects[0]?.kept !== undefined)
    throw new EvidenceError(
      'answer_twice',
      'expected no answer beside an answer: give the evidence to compare it with',
    )
}
