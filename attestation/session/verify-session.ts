import { DIALECTS, type Dialect } from '../dialects/dialects.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '../evidence/bundle.ts'
import type { BundleReport } from '../evidence/bundle-checks.ts'
import { namedBlocksOf } from '../evidence/check-provider.ts'
import {
  type AskChain,
  type BundleContext,
  type BundlePolicy,
  type ChainFacts,
  NO_BLOCKS,
} from '../evidence/policy.ts'
import {
  isRefused,
  type Judgement,
  judgeChecks,
  orderChecks,
  refuseForm,
} from '../evidence/verdict.ts'
import { verifyBundle } from '../evidence/verify-bundle.ts'
import { attempt, reasonOf } from '../finding.ts'
import type { Json, JsonObject } from '../json/value.ts'
import type { TurnStep } from './items.ts'
import {
  type CallContent,
  type CallRelation,
  type RelatedCall,
  relateCalls,
} from './relate-calls.ts'
import { parseSessionBundle } from './session-bundle.ts'
import {
  type CheckedCall,
  checkCalls,
  SESSION_CHECKS,
  type SessionCheck,
  type SessionCheckName,
} from './session-checks.ts'
import { TURNS } from './turns.ts'

export type SessionReport = Judgement<SessionCheckName> & {
  readonly checks: readonly SessionCheck[]
  /** Null if the file does not have the form of a session bundle. */
  readonly id: string | null
  readonly calls: readonly SessionCallReport[]
  /** Empty if the session is invalid. */
  readonly timeline: readonly TimelineStep[]
}

export type SessionCallReport = {
  readonly report: BundleReport
  /** How the request relates to earlier calls. Null if the evidence of a call is invalid. */
  readonly relation: CallRelation | null
}

/** A step of the session, with the place of its call. */
export type TimelineStep = TurnStep & { readonly call: number }

export type VerifySessionContext = {
  readonly attestations?: NonNullable<BundleContext['attestations']>
  /** If left out, no chain is used. */
  readonly askChain?: AskChain
}

/**
 * Checks the evidence of each call in a session as verifyBundle does. Checks that the file has all
 * calls of the session, each once and in order. `json` is attacker-controlled: read its text with
 * parseExactJson. Never rejects because of the session. Rejects with PolicyError, and with errors
 * of `askChain`.
 *
 * Does NOT prove more of a call than verifyBundle, or: what a tool did, because the caller sent the
 * tool's answer; that no calls came after the last call, unless the last call states this; that the
 * caller made no calls outside of the session, or another call with the same number.
 */
export async function verifySession(
  json: Json,
  policy: BundlePolicy,
  context: VerifySessionContext = {},
): Promise<SessionReport> {
  const parsed = attempt(() => parseSessionBundle(json))
  if ('fault' in parsed) {
    const detail = reasonOf(parsed.fault)
    const refusal = refuseForm(SESSION_CHECKS, { subject: 'the session', detail })
    return { ...refusal, id: null, calls: [], timeline: [] }
  }
  const { id, calls: given, unanswered } = parsed.value
  const bundles = given.map((bundle) => attempt(() => parseEvidenceBundle(bundle)))
  const read = bundles.map((bundle) => ('value' in bundle ? bundle.value : null))
  const reports = await verifyCalls(given, read, { policy, context })
  const holds = !reports.some(({ verdict }) => isRefused(verdict))
  const related = holds
    ? relateCalls(read.flatMap((one) => (one === null ? [] : [contentOf(one)])))
    : null
  const checked = reports.map((report, at) => checkedCall(report, read[at] ?? null))
  const made: readonly SessionCheck[] = [
    { name: 'format', outcome: 'passed', detail: `${given.length} calls` },
    ...checkCalls(id, checked, related, unanswered),
  ]
  const checks = orderChecks(made, SESSION_CHECKS)
  const judgement = judgeChecks(checks, { table: SESSION_CHECKS })
  const isShown = !isRefused(judgement.verdict) && related !== null
  return {
    ...judgement,
    checks,
    id,
    calls: reports.map((report, at) => ({ report, relation: related?.[at]?.relation ?? null })),
    timeline: isShown ? related.flatMap((call, at) => stepsOf(call, at, read[at] ?? null)) : [],
  }
}

async function verifyCalls(
  given: readonly JsonObject[],
  read: readonly (EvidenceBundle | null)[],
  demands: { readonly policy: BundlePolicy; readonly context: VerifySessionContext },
): Promise<readonly BundleReport[]> {
  const { policy, context } = demands
  const { attestations, askChain } = context
  // Calls with the same anchor have the same block, so the chain is asked once for the same blocks.
  const known = new Map<string, ChainFacts>()
  const reports: BundleReport[] = []
  for (const [at, bundle] of given.entries()) {
    const parsed = read[at] ?? null
    const blocks = parsed ? await namedBlocksOf(parsed) : NO_BLOCKS
    const key = `${blocks.anchor} ${blocks.provider}`
    const chain = known.get(key) ?? (await askChain?.(blocks))
    if (chain !== undefined) known.set(key, chain)
    reports.push(
      await verifyBundle(bundle, policy, {
        ...(attestations === undefined ? {} : { attestations }),
        ...(chain === undefined ? {} : { chain }),
      }),
    )
  }
  return reports
}

function checkedCall(report: BundleReport, bundle: EvidenceBundle | null): CheckedCall {
  if (bundle === null) return { report, hash: null, demands: { value: null } }
  const { record } = bundle
  const demands = attempt(() =>
    'request' in record ? dialectOf(bundle).demandsOf(record.request) : undefined,
  )
  return { report, hash: bundle.record.hash, demands }
}

function contentOf(bundle: EvidenceBundle): CallContent {
  const { record } = bundle
  const { name, readRequest } = dialectOf(bundle)
  return {
    turns: TURNS[name],
    body: 'request' in record ? readRequest(record.request).body : null,
    response: 'response' in record ? record.response : null,
  }
}

function dialectOf({ record }: EvidenceBundle): Dialect {
  return DIALECTS[record.receipt.dialect]
}

function stepsOf(
  { relation, added, answer }: RelatedCall,
  call: number,
  bundle: EvidenceBundle | null,
): readonly TimelineStep[] {
  const leftOut = (part: string) => ({ kind: 'other', name: 'left out', text: part }) as const
  const isAnswered = bundle !== null && 'response' in bundle.record
  const steps: readonly TurnStep[] = [
    ...(relation.kind === 'left out' ? [leftOut('the request')] : []),
    ...[...added, ...answer].map(({ step }) => step),
    ...(isAnswered ? [] : [leftOut('the answer')]),
    { kind: 'ended', name: bundle?.record.receipt.outcome ?? '', text: '' },
  ]
  return steps.map((step) => ({ call, ...step }))
}
