import { nameRelease } from '../release/accepted-releases.ts'
import type { Release } from '../release/release.ts'
import { type AttestationError, type AttestationStage, RULES, type RuleNumber } from './attestation-error.ts'
import type { Bindings } from './bindings.ts'
import type { ResolvedPolicy } from './policy.ts'

/**
 * What became of one rule. `not checked` is never a pass: nobody asked for it, or the document was refused before.
 * `reported` is for what is shown and never refused.
 */
export type RuleOutcome = {
  readonly rule: RuleNumber
  readonly title: string
  readonly outcome: 'passed' | 'failed' | 'not checked' | 'reported'
  /** Why, or with which result; may be empty. */
  readonly detail: string
}

/** Gives the outcomes for a document that was accepted under `policy`, one for each rule, in order. */
export function outcomesOfAcceptance(
  policy: ResolvedPolicy,
  {
    bindings,
    isDebug,
    release,
  }: { readonly bindings: Bindings; readonly isDebug: boolean; readonly release: Release | null },
): readonly RuleOutcome[] {
  return listRules((rule) => {
    if (rule === 25) return { outcome: 'reported', detail: describeBindings(bindings) }
    if (rule === 23 && !isDebug) return { outcome: 'passed', detail: '' }
    if (rule === 24 && release) return { outcome: 'passed', detail: nameRelease(release) }
    return askedFor(rule, policy)
  })
}

/**
 * Gives the outcomes for a document that was refused: rules of earlier stages held, the broken one failed, and of the
 * others of its stage and of later stages nothing is claimed; but policy is checked in the order of its rules.
 */
export function outcomesOfRefusal(error: AttestationError, policy: ResolvedPolicy): readonly RuleOutcome[] {
  return listRules((rule) => {
    if (rule === error.rule) return { outcome: 'failed', detail: `${error.code}: ${error.message}` }
    return heldBefore(rule, error) ? askedFor(rule, policy) : skipped('refused before')
  })
}

function heldBefore(rule: RuleNumber, error: AttestationError): boolean {
  const { stage } = RULES[rule]
  if (stage === error.stage) return stage === 'policy' && rule < error.rule
  // Strict CBOR is also demanded of the payload, which the parse stage reads.
  if (rule === 6 && error.stage === 'parse') return false
  return STAGES.indexOf(stage) < STAGES.indexOf(error.stage)
}

const STAGES: readonly AttestationStage[] = ['decode', 'parse', 'chain', 'signature', 'policy']

type Verdict = Pick<RuleOutcome, 'outcome' | 'detail'>

function listRules(judge: (rule: RuleNumber) => Verdict): readonly RuleOutcome[] {
  return RULE_NUMBERS.map((rule) => ({ rule, title: RULES[rule].title, ...judge(rule) }))
}

const RULE_NUMBERS = Object.keys(RULES).map(Number) as readonly RuleNumber[]

function askedFor(rule: RuleNumber, policy: ResolvedPolicy): Verdict {
  const { mode, revoked, revocationLists, nonce, measurements, allowDebug } = policy
  if (rule === 18 && mode === 'historical') {
    return { outcome: 'passed', detail: "at the document's own time (historical)" }
  }
  if (rule === 19 && revocationLists.length > 0)
    return { outcome: 'passed', detail: describeLists(revocationLists) }
  if (rule === 19 && revoked.length === 0) return skipped('no revoked certificates were given')
  if (rule === 21 && mode === 'historical') {
    return { outcome: 'passed', detail: 'made within the life of its leaf; age not checked (historical)' }
  }
  if (rule === 22 && nonce === null) return skipped('no nonce was asked for')
  if (rule === 23 && allowDebug) return skipped('debug mode was allowed')
  if (rule === 24 && measurements === 'any') return skipped('any measurement is accepted')
  return { outcome: 'passed', detail: '' }
}

/** Certificates of other issuers were not looked up: there are no lists of instances and leaves. */
function describeLists(lists: ResolvedPolicy['revocationLists']): string {
  const oldestMs = Math.min(...lists.map(({ thisUpdateMs }) => thisUpdateMs))
  const made = new Date(oldestMs).toISOString()
  return `${lists.length} lists of issuers in the chain, as of ${made} or later; what others issued was not looked up`
}

function skipped(detail: string): Verdict {
  return { outcome: 'not checked', detail }
}

function describeBindings({ pcr4, leafCommonName, issuerCommonName }: Bindings): string {
  const say = (holds: boolean | null) => (holds === null ? 'nothing to compare' : holds ? 'yes' : 'NO')
  return `PCR4 ${say(pcr4)}, leaf ${say(leafCommonName)}, issuer ${say(issuerCommonName)}`
}
