import type { Check } from '../finding.ts'
import { ProviderEvidenceError } from './provider-error.ts'

export type ProviderCheck<Name extends string = string> = Check<Name> & {
  /** The code of the fault; null if the check did not fail. */
  readonly code: string | null
  /** True if the check was not made because the policy or the hardware does not need it. */
  readonly isWaived: boolean
}

/** `detail` describes, for people, what the check established. */
export type Established<Value> = { readonly value: Value; readonly detail: string }

/** The reason why a check was not made. Such a check has not passed. */
export type NotMade = { readonly notChecked: string; readonly isWaived: boolean }

/** The checks of one judgement. Checks may run at the same time. */
export type ProviderChecks<Name extends string> = {
  /**
   * Makes a check. The check fails if `find` throws ProviderEvidenceError. Any other error is
   * thrown to the caller. Returns the established value. Null if the check failed or was not made:
   * the caller then skips the checks that need the value.
   */
  make<Value>(
    name: Name,
    find: () => Promise<Established<Value> | NotMade> | Established<Value> | NotMade,
  ): Promise<Value | null>
  /** In the order of the table. A check that `make` was not called for counts as failed. */
  list(): readonly ProviderCheck<Name>[]
}

/** `table`: all checks by name, in the order of the report. */
export function createProviderChecks<Name extends string>(
  table: Readonly<Record<Name, string>>,
): ProviderChecks<Name> {
  const made = new Map<string, ProviderCheck<Name>>()
  const add = (check: Omit<ProviderCheck<Name>, 'code' | 'isWaived'>, code: string | null = null) =>
    made.set(check.name, { ...check, code, isWaived: false })
  return {
    async make(name, find) {
      try {
        const found = await find()
        if ('notChecked' in found) {
          const { notChecked: detail, isWaived } = found
          made.set(name, { name, outcome: 'not checked', detail, code: null, isWaived })
          return null
        }
        add({ name, outcome: 'passed', detail: found.detail })
        return found.value
      } catch (fault) {
        if (!(fault instanceof ProviderEvidenceError)) throw fault
        add({ name, outcome: 'failed', detail: fault.message }, fault.code)
        return null
      }
    },
    list: () => namesOf(table).map((name) => made.get(name) ?? leftOut(name)),
  }
}

function namesOf<Name extends string>(table: Readonly<Record<Name, string>>): readonly Name[] {
  return Object.keys(table).filter((name): name is Name => Object.hasOwn(table, name))
}

function leftOut<Name extends string>(name: Name): ProviderCheck<Name> {
  const detail = 'this check was not made'
  return { name, outcome: 'failed', detail, code: 'left_out', isWaived: false }
}

export function established<Value>(value: Value, detail = ''): Established<Value> {
  return { value, detail }
}

export function blockedBy(name: string): NotMade {
  return { notChecked: `"${name}" did not pass`, isWaived: false }
}

export function notGiven(what: string): NotMade {
  return { notChecked: `${what} not given`, isWaived: false }
}

export function waived(reason: string): NotMade {
  return { notChecked: reason, isWaived: true }
}

/**
 * Throws ProviderEvidenceError unless each check passed or is waived. The error has the code of the
 * first failed check, or `not_checked` if no check failed.
 */
export function requireChecks(checks: readonly ProviderCheck[]): void {
  const failed = checks.find(({ outcome }) => outcome === 'failed')
  if (failed) throw new ProviderEvidenceError(failed.code ?? 'failed', sayCheck(failed))
  const open = checks.find(({ outcome, isWaived }) => outcome === 'not checked' && !isWaived)
  if (open) throw new ProviderEvidenceError('not_checked', sayCheck(open))
}

function sayCheck({ name, outcome, detail }: ProviderCheck): string {
  return `${name}, ${outcome}: ${detail}`
}
