import type { Check } from '../../../attestation/finding.ts'
import { LINKS, type LinkName, OPTIONAL_CHECKS, wordsOf } from './check-words.ts'

/** What is known of one link of the chain. */
export type LinkState = {
  readonly name: LinkName
  readonly title: string
  readonly about: string
  readonly state: 'holds' | 'broken' | 'open'
  /** Why it is broken or open, in a few words; empty when it holds. */
  readonly why: string
  readonly checks: readonly Check<string>[]
}

/**
 * Gives every link of the chain with its checks, in the order of the chain. A link is broken when a
 * check of it failed, and open when one that it needs was not made, or when there is none.
 */
export function linkStates(checks: readonly Check<string>[]): readonly LinkState[] {
  return LINKS.map((link) => {
    const own = checks.filter(({ name }) => linksOf(name).includes(link.name))
    return { ...link, checks: own, ...judgeLink(own) }
  })
}

/** A check that has no words is shown where nobody overlooks it. */
function linksOf(name: string): readonly LinkName[] {
  const { link, also } = wordsOf(name) ?? { link: 'request' }
  return also === undefined ? [link] : [link, also]
}

function judgeLink(checks: readonly Check<string>[]): Pick<LinkState, 'state' | 'why'> {
  const namesOf = (outcome: string) =>
    checks
      .filter((check) => check.outcome === outcome && !isOptional(check))
      .map(({ name }) => name)
  const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
  if (failed.length > 0) return { state: 'broken', why: failed.join(', ') }
  const open = namesOf('not checked')
  if (open.length > 0) return { state: 'open', why: open.join(', ') }
  if (checks.length === 0) return { state: 'open', why: 'this kind of evidence does not have it' }
  return { state: 'holds', why: '' }
}

function isOptional({ name }: Check<string>): boolean {
  return OPTIONAL_CHECKS.has(name)
}
