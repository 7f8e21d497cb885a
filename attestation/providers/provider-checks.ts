import type { Check } from '../finding.ts'
import { ProviderEvidenceError } from './provider-error.ts'

/** One check of a provider's evidence, and the code of its fault; null if it did not fail. */
export type ProviderCheck<Name extends string = string> = Check<Name> & {
  readonly code: string | null
}

/** The value that a check established. A check that fails or is not made establishes no value. */
export type Established<Value> = { readonly value: Value; readonly detail: string }

/** Why a check is not made. It then has not passed. */
export type NotMade = { readonly notChecked: string }

/** The checks of one judgement, in the order in which they are made. */
export type ProviderChecks<Name extends string> = {
  /** What was made so far. */
  readonly checks: readonly ProviderCheck<Name>[]
  /**
   * Makes a check: `find` throws ProviderEvidenceError if it fails. Returns the established value;
   * null if the check failed or was not made, so that checks which build on it are not made either.
   * Passes on every other error: it is a fault of this code or of the policy.
   */
  make<Value>(
    name: Name,
    find: () => Promise<Established<Value> | NotMade> | Established<Value> | NotMade,
  ): Promise<Value | null>
}

/** Creates an empty list. */
export function createProviderChecks<Name extends string>(): ProviderChecks<Name> {
  const checks: ProviderCheck<Name>[] = []
  return {
    checks,
    async make(name, find) {
      try {
        const found = await find()
        if ('notChecked' in found) {
          checks.push({ name, outcome: 'not checked', detail: found.notChecked, code: null })
          return null
        }
        checks.push({ name, outcome: 'passed', detail: found.detail, code: null })
        return found.value
      } catch (fault) {
        if (!(fault instanceof ProviderEvidenceError)) throw fault
        checks.push({ name, outcome: 'failed', detail: fault.message, code: fault.code })
        return null
      }
    },
  }
}

/** A check that passed, with its value. */
export function established<Value>(value: Value, detail = ''): Established<Value> {
  return { value, detail }
}

/**
 * Throws the fault of the first check that failed; ProviderEvidenceError `not_checked` if a check
 * was not made that is not in `waived`. A check that was not made never counts as passed.
 */
export function requireChecks<Name extends string>(
  checks: readonly ProviderCheck<Name>[],
  waived: readonly Name[] = [],
): void {
  for (const { name, outcome, code, detail } of checks) {
    if (outcome === 'failed')
      throw new ProviderEvidenceError(code ?? 'failed', `${name}: ${detail}`)
    if (outcome === 'not checked' && !waived.includes(name))
      throw new ProviderEvidenceError('not_checked', `${name}: not checked: ${detail}`)
  }
}
