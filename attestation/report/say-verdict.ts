import type { Verdict } from '../evidence/verdict.ts'
import type { Check } from '../finding.ts'
import { printable } from './printable.ts'

export const VERDICT_WORDS: Readonly<Record<Verdict, string>> = {
  verified: 'VERIFIED',
  incomplete: 'INCOMPLETE',
  not_accepted: 'NOT ACCEPTED',
  invalid: 'INVALID',
}

/**
 * The verdict and its reason, on one line. `failed`: the failed checks, in their order. `open`: all
 * checks that were not made, also optional checks.
 */
export function sayVerdict(
  verdict: Verdict,
  said: {
    readonly failed: readonly Check<string>[]
    readonly open: readonly string[]
    readonly where?: string
  },
): string {
  const { where = '' } = said
  const list = (names: readonly string[]) => [...new Set(names)].join(', ')
  switch (verdict) {
    case 'invalid': {
      const contradicted = said.failed.filter(({ isOfPolicy }) => isOfPolicy !== true)
      return `INVALID: failed at ${list(contradicted.map(({ name }) => name))}${where}.`
    }
    case 'not_accepted': {
      const reasons = said.failed.map(({ name, detail }) => `${name}: ${printable(detail)}`)
      return `NOT ACCEPTED by your policy${where}: ${[...new Set(reasons)].join('; ')}.`
    }
    case 'incomplete':
      return `INCOMPLETE: nothing failed${where}, but this was not checked: ${list(said.open)}.`
    case 'verified': {
      const rest = said.open.length === 0 ? '' : ` Not checked: ${list(said.open)}.`
      return `VERIFIED: nothing failed, and everything that is needed was checked.${rest}`
    }
  }
}
