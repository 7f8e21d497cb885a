import { refusedAs } from '#attestation/evidence/verdict.ts'
import type { Check } from '#attestation/finding.ts'
import { hasKnownCode } from '#attestation/report/enclave-code.ts'
import { LINKS, type LinkName, OPTIONAL_CHECKS, wordsOf } from './check-words.ts'

export type LinkState = {
  readonly name: LinkName
  readonly title: string
  readonly about: string
  readonly state: 'holds' | 'broken' | 'open' | 'void' | 'unaccepted'
  /** Says why the link is not intact, in a few words. Empty for an intact link. */
  readonly why: string
  readonly checks: readonly Check<string>[]
}

/** Other registers than PCR0 do not say which code runs, even if they are as expected. */
export function missingOfCode(
  signed: Parameters<typeof hasKnownCode>[0] | null,
): readonly string[] {
  return signed === null || hasKnownCode(signed) ? [] : ['measurements']
}

/**
 * Returns every link with its checks, in order. A link is broken when one of its checks failed. A
 * link is open when a check that it needs was not made, or when it has no checks. A link is
 * unaccepted when only the reader's policy refuses it. A link is void when all its checks passed,
 * but a link that it needs is broken: its checks then prove nothing about the shown content.
 * `missing`: other checks that a link needs, and that were not made.
 */
export function linkStates(
  checks: readonly Check<string>[],
  missing: readonly string[] = [],
): readonly LinkState[] {
  const states = new Map<LinkName, LinkState>()
  for (const { needs, ...link } of LINKS) {
    const own = checks.filter(({ name }) => linksOf(name).includes(link.name))
    const lacks = missing.filter((check) => linksOf(check).includes(link.name))
    const judged = judgeLink(own, lacks)
    const lost = needs.flatMap((name) => states.get(name) ?? []).find(isLost)
    const state =
      judged.state === 'holds' && lost !== undefined
        ? { state: 'void' as const, why: lost.state === 'void' ? lost.why : lost.title }
        : judged
    states.set(link.name, { ...link, checks: own, ...state })
  }
  return [...states.values()]
}

function isLost({ state }: LinkState): boolean {
  return state === 'broken' || state === 'void'
}

/** A check that wordsOf does not know belongs to the first link, where readers see it. */
function linksOf(name: string): readonly LinkName[] {
  const { link, also } = wordsOf(name) ?? { link: 'request' }
  return also === undefined ? [link] : [link, also]
}

function judgeLink(
  checks: readonly Check<string>[],
  missing: readonly string[],
): Pick<LinkState, 'state' | 'why'> {
  const namesOf = (outcome: string) =>
    checks
      .filter((check) => check.outcome === outcome && !isOptional(check))
      .map(({ name }) => name)
  const failed = checks.filter(({ outcome }) => outcome === 'failed')
  if (refusedAs(checks) === 'not_accepted')
    return { state: 'unaccepted', why: `your policy does not accept: ${failed[0]?.name}` }
  if (failed.length > 0) return { state: 'broken', why: failed.map(({ name }) => name).join(', ') }
  const open = [...new Set([...namesOf('not checked'), ...missing])]
  if (open.length > 0) return { state: 'open', why: open.join(', ') }
  if (checks.length === 0) return { state: 'open', why: 'this kind of evidence does not have it' }
  return { state: 'holds', why: '' }
}

function isOptional({ name }: Check<string>): boolean {
  return OPTIONAL_CHECKS.has(name)
}
