import { keptResponseOf } from '../compare-exchange.ts'
import { DIALECTS, type Dialect } from '../dialects/dialects.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '../evidence/bundle.ts'
import type { BundleReport } from '../evidence/bundle-checks.ts'
import { namedBlocksOf } from '../evidence/check-provider.ts'
import { streamIn } from '../evidence/kept-events.ts'
import {
  type AskChain,
  type BundleContext,
  type BundlePolicy,
  type ChainFacts,
  NO_BLOCKS,
} from '../evidence/policy.ts'
import { isRefused, type Judgement, judgeChecks, orderChecks } from '../evidence/verdict.ts'
import { verifyBundle } from '../evidence/verify-bundle.ts'
import { attempt } from '../finding.ts'
import type { JsonObject } from '../json/value.ts'
import type { TurnStep } from './items.ts'
import {
  type CallContent,
  type CallRelation,
  type RelatedCall,
  relateCalls,
} from './relate-calls.ts'
import {
  type CheckedCall,
  checkCalls,
  SESSION_CHECKS,
  type SessionCheck,
  type SessionCheckName,
  sessionIdOf,
} from './session-checks.ts'
import { TURNS } from './turns.ts'

export type SessionReport = Judgement<SessionCheckName> & {
  readonly checks: readonly SessionCheck[]
  /** The session that the calls name. Null if no call names one. */
  readonly id: string | null
  readonly calls: readonly SessionCallReport[]
  /** Empty if a call or the session is refused, and without a session. */
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
 * Checks the evidence of several calls as verifyBundle does. If they name a session, checks that
 * these are all of its calls, each once and in order. `given` is attacker-controlled: read it with
 * readEvidenceLines. Never rejects because of the calls. Rejects with PolicyError, and with errors
 * of `askChain`.
 *
 * Does NOT prove more of a call than verifyBundle, or: what a tool did, because the caller sent the
 * tool's answer; that no calls came after the last call, unless the last call states this; that the
 * caller made no calls outside of the session, or another call with the same number.
 */
export async function verifySession(
  given: readonly JsonObject[],
  policy: BundlePolicy,
  context: VerifySessionContext = {},
): Promise<SessionReport> {
  const bundles = given.map((bundle) => attempt(() => parseEvidenceBundle(bundle)))
  const read = bundles.map((bundle) => ('value' in bundle ? bundle.value : null))
  const reports = await verifyCalls(given, read, { policy, context })
  const holds = !reports.some(({ verdict }) => isRefused(verdict))
  const related = holds
    ? relateCalls(read.flatMap((one) => (one === null ? [] : [contentOf(one)])))
    : null
  const checked = reports.map((report, at) => checkedCall(report, read[at] ?? null))
  const id = sessionIdOf(checked)
  const checks = orderChecks(checkCalls(checked, related), SESSION_CHECKS)
  const judgement = judgeChecks(checks, { table: SESSION_CHECKS })
  const isShown = id !== null && !isRefused(judgement.verdict) && related !== null
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

/** A stream has the answer where the evidence leaves the response out. */
function responseOf(bundle: EvidenceBundle): JsonObject | null {
  const { record } = bundle
  if ('response' in record) return record.response
  const stream = streamIn(bundle)
  const read = stream && attempt(() => keptResponseOf(stream, record.receipt.dialect))
  return read !== null && 'value' in read ? read.value : null
}

function contentOf(bundle: EvidenceBundle): CallContent {
  const { record } = bundle
  const { name, readRequest } = dialectOf(bundle)
  return {
    turns: TURNS[name],
    body: 'request' in record ? readRequest(record.request).body : null,
    response: responseOf(bundle),
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
  const isAnswered = bundle !== null && responseOf(bundle) !== null
  const steps: readonly TurnStep[] = [
    ...(relation.kind === 'left out' ? [leftOut('the request')] : []),
    ...[...added, ...answer].map(({ step }) => step),
    ...(isAnswered ? [] : [leftOut('the answer')]),
    { kind: 'ended', name: bundle?.record.receipt.outcome ?? '', text: '' },
  ]
  return steps.map((step) => ({ call, ...step }))
}
