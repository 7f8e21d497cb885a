import type { CallRelation } from '../session/relate-calls.ts'
import type { SessionCallReport, SessionReport } from '../session/verify-session.ts'
import { conclude } from './conclude.ts'
import { describeStep, NOTHING_SHOWN, type ShownMessage } from './shown-exchange.ts'

const SHOWN_STEPS_MAX = 1_000

export type ShownCall = {
  readonly hash: string | null
  readonly verdict: SessionReport['verdict']
  /** The verdict and its reason, on one line. */
  readonly headline: string
  /** How the request relates to earlier calls. Null if the evidence of a call is invalid. */
  readonly relation: string | null
  /** The new items of the call's request, and the call's answer. */
  readonly steps: readonly ShownMessage[]
}

/** A session in words, limited in length. All text is attacker-controlled: use linesOf. */
type ShownSession = {
  readonly calls: readonly ShownCall[]
  readonly stepsLeftOut: number
}

export function describeSession({ calls, timeline }: SessionReport): ShownSession {
  const shown = timeline.slice(0, SHOWN_STEPS_MAX)
  const steps = calls.map((): ShownMessage[] => [])
  for (const step of shown) steps[step.call]?.push(describeStep(step))
  return {
    calls: calls.map((call, at) => ({
      hash: call.report.facts?.hash ?? null,
      verdict: call.report.verdict,
      headline: sayCall(call),
      relation: call.relation && sayRelation(call.relation),
      steps: steps[at] ?? [],
    })),
    stepsLeftOut: timeline.length - shown.length,
  }
}

function sayCall({ report }: SessionCallReport): string {
  return conclude({
    kind: 'bundle',
    hasOtherRoot: false,
    verdict: report.verdict,
    report,
    comparison: [],
    differences: [],
    exchange: NOTHING_SHOWN,
    differing: NOTHING_SHOWN,
  }).headline
}

/** Calls are numbered from 0. */
export function sayRelation(relation: CallRelation): string {
  switch (relation.kind) {
    case 'starts':
      return 'starts a conversation'
    case 'continues':
      return `builds on the answer of call ${relation.call}`
    case 'repeats':
      return `asks what call ${relation.call} asked`
    case 'rewrites':
      return `contains the answer of call ${relation.call}, but with another history before it`
    case 'left out':
      return 'has no request in this file'
  }
}
