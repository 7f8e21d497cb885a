import type { Demands, SessionPlace } from '../demands.ts'
import { NotAcceptedError, ProofError } from '../errors.ts'
import type { BundleReport } from '../evidence/bundle-checks.ts'
import type { CheckTable } from '../evidence/verdict.ts'
import { type Attempt, type Check, check, type Finding, need } from '../finding.ts'
import type { RelatedCall } from './relate-calls.ts'

export type SessionCheckName = keyof typeof SESSION_CHECKS

/** All checks. Those of a session are made if a call names one. */
export const SESSION_CHECKS = {
  /** The evidence of each call passes the checks of verifyBundle. */
  'evidence of calls': 'always',
  /** Every call names the same session. The other checks are of the calls that do. */
  'one session': 'if made',
  /** The calls have all numbers from 0 up to the last one. */
  'none missing': 'if made',
  /** No number and no completion occurs twice. */
  'none doubled': 'if made',
  /** The calls are in the order of their numbers. */
  order: 'if made',
  /** Every call names the hash of the call before it. */
  'previous hash': 'if made',
  /** Only the last call states that it is the last. */
  'signed end': 'if made',
  /** Each answer in the history of a request is the answer of an earlier call. */
  'answers in requests': 'if made',
} as const satisfies CheckTable<string>

export type SessionCheck = Check<SessionCheckName>

export type CheckedCall = {
  readonly report: BundleReport
  /** Null if the bundle is malformed. */
  readonly hash: string | null
  /** The demands in the request. The value is undefined if the request is left out. */
  readonly demands: Attempt<Demands | null | undefined>
}

/**
 * Checks that the file has every call of one session, each once and in order. If no call names a
 * session, checks only the evidence of each. `related` is null if the evidence of a call is
 * invalid.
 */
export function checkCalls(
  calls: readonly CheckedCall[],
  related: readonly RelatedCall[] | null,
): readonly SessionCheck[] {
  const evidence = check('evidence of calls', () => checkEvidence(calls))
  const id = sessionIdOf(calls)
  if (id === null) return [evidence]
  const all = calls.map((call) => placeOf(call))
  const isOwn = (place: NamedPlace | undefined) =>
    place === 'left out' || (isPlace(place) && place.id === id)
  const own = calls.filter((_, at) => isOwn(all[at]))
  const places = all.filter(isOwn)
  const hidden = all.flatMap((place, at) => (place === 'left out' ? [at] : []))
  const orHidden = (finding: Finding): Finding =>
    hidden.length === 0 || typeof finding !== 'string'
      ? finding
      : { notChecked: `the evidence leaves out the request of ${sayCalls(hidden)}` }
  const numbers = places.map((place) => (isPlace(place) ? place.n : null))
  const others = [...all.keys()].filter((at) => !isOwn(all[at]))
  return [
    evidence,
    check('one session', () => orHidden(checkId(id, calls, others))),
    check('none missing', () => orHidden(checkMissing(numbers, hidden.length))),
    check('none doubled', () => orHidden(checkDoubled(numbers, calls))),
    check('order', () => orHidden(checkOrder(numbers))),
    check('previous hash', () => orHidden(checkPrevious(places, own))),
    check('signed end', () => orHidden(checkEnd(places))),
    check('answers in requests', () => orHidden(checkAnswers(related))),
  ]
}

/** The session that most of the calls name. Null if no call names one. */
export function sessionIdOf(calls: readonly CheckedCall[]): string | null {
  const counts = new Map<string, number>()
  for (const place of calls.map(placeOf))
    if (isPlace(place)) counts.set(place.id, (counts.get(place.id) ?? 0) + 1)
  const [most] = [...counts].toSorted(([, one], [, other]) => other - one)
  return most?.[0] ?? null
}

/** Null if the call names no session, or its demands cannot be read. */
type NamedPlace = SessionPlace | 'left out' | null

function placeOf({ demands }: CheckedCall): NamedPlace {
  if ('fault' in demands) return null
  return demands.value === undefined ? 'left out' : (demands.value?.session ?? null)
}

function isPlace(place: NamedPlace | undefined): place is SessionPlace {
  return typeof place === 'object' && place !== null
}

const NAMED_CALLS_MAX = 5

/** Names calls by their places in the file, from 0. */
function sayCalls(places: readonly number[]): string {
  const rest = places.length - NAMED_CALLS_MAX
  const named = places.slice(0, NAMED_CALLS_MAX).join(', ')
  return `call${places.length === 1 ? '' : 's'} ${named}${rest > 0 ? ` and ${rest} more` : ''}`
}

function refuse(code: string, message: string): ProofError {
  return new ProofError(code, message)
}

function checkEvidence(calls: readonly CheckedCall[]): Finding {
  if (calls.length === 0) throw refuse('no_calls', 'expected the evidence of one call or more')
  const withVerdict = (wanted: string) =>
    calls.flatMap(({ report }, at) => (report.verdict === wanted ? [at] : []))
  const invalid = withVerdict('invalid')
  if (invalid.length > 0)
    throw refuse('invalid_call', `the evidence of ${sayCalls(invalid)} is invalid`)
  const foreign = withVerdict('not_accepted')
  if (foreign.length > 0)
    throw new NotAcceptedError(
      'call_not_accepted',
      `your policy does not accept the evidence of ${sayCalls(foreign)}`,
    )
  const incomplete = withVerdict('incomplete')
  if (incomplete.length === 0) return `${calls.length} calls are verified`
  const open = new Set(incomplete.flatMap((at) => calls[at]?.report.open ?? []))
  return { notChecked: `of ${sayCalls(incomplete)}: ${[...open].join(', ')}` }
}

/** Throws for demands that cannot be read. */
function checkId(id: string, calls: readonly CheckedCall[], others: readonly number[]): Finding {
  for (const { demands } of calls) need(demands)
  if (others.length === 0) return `session ${id}`
  return { notChecked: `not of session ${id}: ${sayCalls(others)}. Check them in their own file` }
}

function checkMissing(numbers: readonly (number | null)[], leftOut: number): Finding {
  const known = new Set(numbers.filter((n) => n !== null))
  const end = Math.max(-1, ...known)
  const missing = end + 1 - known.size
  // Calls whose requests are left out may have the missing numbers.
  if (missing <= leftOut) return `calls 0 to ${end}`
  const first = Array.from({ length: known.size + 1 }, (_, n) => n).find((n) => !known.has(n))
  const rest = missing === 1 ? '' : `, the first of ${missing}`
  throw refuse('missing_call', `the call with number ${first} is missing${rest}`)
}

function checkDoubled(numbers: readonly (number | null)[], calls: readonly CheckedCall[]): Finding {
  const known = new Set<number>()
  for (const n of numbers) {
    if (n !== null && known.has(n))
      throw refuse('doubled_call', `the call with number ${n} is there more than once`)
    if (n !== null) known.add(n)
  }
  const hashes = new Set(calls.map(({ hash }) => hash))
  if (hashes.size < calls.length)
    throw refuse('doubled_call', 'a completion is there more than once')
  return `${calls.length} different calls`
}

function checkOrder(numbers: readonly (number | null)[]): Finding {
  const known = numbers.filter((n) => n !== null)
  const at = known.findIndex((n, index) => n < (known[index - 1] ?? 0))
  if (at >= 0)
    throw refuse(
      'moved_call',
      `the call with number ${known[at]} stands after number ${known[at - 1]}`,
    )
  return 'the calls are in the order of their numbers'
}

function checkPrevious(places: readonly NamedPlace[], calls: readonly CheckedCall[]): Finding {
  places.forEach((place, at) => {
    const before = at === 0 ? null : (calls[at - 1]?.hash ?? 'no hash')
    if (isPlace(place) && place.previous !== before)
      throw refuse(
        'other_previous',
        `expected call ${at} to name ${before ?? 'no call'} before it, got ${place.previous ?? 'no call'}`,
      )
  })
  return 'each call names the hash of the call before it'
}

function checkEnd(places: readonly NamedPlace[]): Finding {
  const ends = places.flatMap((place, at) => (isPlace(place) && place.last === true ? [at] : []))
  const early = ends.find((at) => at < places.length - 1)
  if (early !== undefined)
    throw refuse('call_after_end', `call ${early} says that it is the last one, but calls follow`)
  return ends.length === 1
    ? 'the last call says that it is the last one'
    : { notChecked: 'the last call does not say that it is the last one: later calls may be cut' }
}

function checkAnswers(related: readonly RelatedCall[] | null): Finding {
  if (related === null) return { notChecked: 'the evidence of a call is invalid' }
  const foreign = related.flatMap(({ foreign }, call) =>
    foreign.map((found) => ({ call, ...found })),
  )
  const rest = foreign.length - NAMED_CALLS_MAX
  if (foreign.length > 0) {
    const named = foreign
      .slice(0, NAMED_CALLS_MAX)
      .map(({ call, at, item: { step }, differsFrom }) => {
        const what = `${step.kind}${step.name === '' ? '' : ` ${step.name}`}`
        const why =
          differsFrom === null ? 'is of no earlier call' : `differs from call ${differsFrom}`
        return `item ${at} (${what}) in the request of call ${call} ${why}`
      })
    return { notChecked: `${named.join('; ')}${rest > 0 ? `; and ${rest} more` : ''}` }
  }
  const contained = related.reduce((sum, { answersContained }) => sum + answersContained, 0)
  return `${contained} answers in ${related.length} requests are of earlier calls`
}
