import type { BundlePolicy, ChainFacts } from '../evidence/policy.ts'
import type { AttestationPolicy } from '../nitro/policy.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { ownMembers } from '../own-members.ts'
import type { Receipt } from '../receipt.ts'
import { type BundleJudgement, judgeBundle } from './judge-bundle.ts'
import { judgeRecord, type SubjectReport, verdictOf } from './judge-record.ts'
import {
  type Evidence,
  EvidenceError,
  type KeptFiles,
  keptOf,
  type Subject,
} from './read-evidence.ts'

/** What is expected of evidence of any kind. */
export type ExpectedEvidence = {
  /** Of attestation documents. Without measurements and releases it accepts none. */
  readonly attestation: AttestationPolicy
  /** Whether anything was said of documents: the one of a record is looked at only then. */
  readonly isAttestationDemanded: boolean
  /** Digests of boot configurations, 32 bytes each; a bundle alone holds one. */
  readonly configurations: readonly Uint8Array[]
  /** Blocks that the anchor's must be deep; null: not said. */
  readonly confirmationsMin: number | null
  /** How a cut answer may have ended and still be accepted; null: not said. */
  readonly outcomes: readonly Receipt['outcome'][] | null
}

/** What evidence came to. */
export type EvidenceJudgement =
  | ({ readonly kind: 'bundle' } & BundleJudgement)
  | {
      readonly kind: 'records'
      readonly verdict: BundleJudgement['verdict']
      readonly records: readonly SubjectReport[]
    }

/**
 * Judges evidence of any kind by what is expected, and compares it with what its caller kept. What
 * a record does not hold is not checked, even when it is expected. Throws EvidenceError, and what
 * `verifier` and `askChain` throw; never for what the evidence says.
 *
 * Does NOT prove more than verifyBundle and verifyRecord say.
 */
export async function judgeEvidence(
  evidence: Evidence,
  demands: {
    readonly expected: ExpectedEvidence
    readonly kept: KeptFiles
    readonly verifier: AttestationVerifier
    /** Asks a chain about the block of this number, or about none. Null: no chain is asked. */
    readonly askChain: ((blockNumber: number | null) => Promise<ChainFacts>) | null
  },
): Promise<EvidenceJudgement> {
  const { expected, kept, verifier, askChain } = demands
  if (evidence.kind === 'bundle') {
    if (evidence.kept !== undefined && (kept.requestBody ?? kept.answer) !== null)
      throw new EvidenceError(
        'answer_twice',
        'expected no request and no answer beside a saved proof, which has both',
      )
    const policy = bundlePolicyOf(expected)
    const judged = await judgeBundle(evidence.bundle, {
      policy,
      verifier,
      kept: evidence.kept ?? keptOf(kept),
      askChain,
    })
    return { kind: 'bundle', ...judged }
  }
  const { subjects } = evidence
  checkComparable(subjects, kept)
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
  return { kind: 'records', verdict: verdictOf(records), records }
}

/**
 * Gives what is expected of a bundle. What is not said is not checked; where any measurement is
 * accepted, the code is left unchecked too.
 */
export function bundlePolicyOf(expected: ExpectedEvidence): BundlePolicy {
  const { configurations, confirmationsMin, outcomes } = expected
  const { measurements, releases, roots, allowDebug } = ownMembers(expected.attestation)
  return {
    ...(measurements === 'any' ? {} : { measurements }),
    ...(releases === undefined ? {} : { releases }),
    ...(roots === undefined ? {} : { roots }),
    ...(allowDebug === undefined ? {} : { allowDebug }),
    ...(confirmationsMin === null ? {} : { confirmationsMin }),
    ...(outcomes === null ? {} : { outcomes }),
    configurations,
  }
}

/**
 * What was kept is of one call. An answer that is the source itself has nothing else to be compared
 * with.
 */
function checkComparable(subjects: readonly Subject[], { requestBody, answer }: KeptFiles): void {
  if (requestBody === null && answer === null) return
  if (subjects.length > 1)
    throw new EvidenceError(
      'several_records',
      'expected one record with a request or an answer, got a page of records',
    )
  if (answer !== null && subjects[0]?.request !== undefined)
    throw new EvidenceError(
      'answer_twice',
      'expected no answer beside an answer: give the evidence to compare it with',
    )
}
