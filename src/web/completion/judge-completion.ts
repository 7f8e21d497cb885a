import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { isJsonObject, type Json, memberAt, memberOf } from '#attestation/json/value.ts'
import type { GivenPolicy, JobOutcome } from '../verify/job.ts'
import type { Checker } from '../verify/start-worker.ts'

export type CompletionJudgement =
  | { readonly kind: 'judged'; readonly outcome: JobOutcome }
  /** The evidence belongs to another completion. */
  | { readonly kind: 'other'; readonly got: string | null }

/**
 * Judges the gateway's evidence for `hash` (hex, no prefix) without asking a chain. Rejects with
 * AbortError when `checker` gets another job.
 */
export async function judgeCompletion(
  given: Json,
  demands: {
    readonly hash: string
    readonly policy: GivenPolicy
    /** The answer that the caller kept, or evidence with it. */
    readonly kept: Blob | null
    readonly checker: Checker
  },
): Promise<CompletionJudgement> {
  const { hash, policy, kept, checker } = demands
  const got = memberAt(given, 'record', 'hash')
  if (got !== hash) return { kind: 'other', got: typeof got === 'string' ? got : null }
  const outcome = await checker.run(
    {
      kind: 'evidence',
      policy,
      request: null,
      answer: kept,
      idempotent: false,
      rpc: null,
      source: new Blob([canonicalizeJson(given)]),
    },
    () => undefined,
  )
  if (outcome.kind !== 'evidence') return { kind: 'judged', outcome }
  // Input of another form could have this record beside the evidence that is judged.
  const { judged } = outcome
  if (judged.kind !== 'bundle') return { kind: 'other', got: null }
  const { facts } = judged.report
  if (facts !== null && facts.hash !== hash) return { kind: 'other', got: facts.hash }
  return { kind: 'judged', outcome }
}

/** True if the evidence has no block yet, so that the page can fetch it again. */
export function isWaiting(given: Json): boolean {
  return isJsonObject(given) && memberOf(given, 'block') === null
}
