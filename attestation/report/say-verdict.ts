import type { Judgement } from '../evidence/verdict.ts'

/** The verdict and its reason. `open`: all checks that were not made, also optional checks. */
export function sayVerdict(
  verdict: Judgement<string>['verdict'],
  said: {
    readonly failed: readonly string[]
    readonly open: readonly string[]
    readonly where?: string
  },
): string {
  const { where = '' } = said
  const list = (names: readonly string[]) => [...new Set(names)].join(', ')
  switch (verdict) {
    case 'invalid':
      return `INVALID: failed at ${list(said.failed)}${where}.`
    case 'consistent':
      return `CONSISTENT: nothing failed${where}, but this was not checked: ${list(said.open)}.`
    case 'verified': {
      const rest = said.open.length === 0 ? '' : ` Not checked: ${list(said.open)}.`
      return `VERIFIED: nothing failed, and everything that is needed was checked.${rest}`
    }
  }
}
