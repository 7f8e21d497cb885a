import { NotAcceptedError } from './errors.ts'
import { AttestationError, isOfPolicy } from './nitro/attestation-error.ts'

/**
 * The outcome of one check. A check that was not made has not passed. `detail`: what holds, what
 * was expected, or why the check was not made.
 */
export type Check<Name extends string> = {
  readonly name: Name
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
  /**
   * True for a failed check if nothing contradicts the evidence, but the reader's policy does not
   * accept it.
   */
  readonly isOfPolicy?: true
}

/**
 * The result of a check: a text if it passed, a reason if it was not made. A failed check throws.
 */
export type Finding = string | { readonly notChecked: string }

/** A value, or the fault thrown in its place. */
export type Attempt<Value> = { readonly value: Value } | { readonly fault: unknown }

/** Runs `find`, which throws if the check fails. `describe` puts the fault into words. */
export function check<Name extends string>(
  name: Name,
  find: () => Finding,
  describe: (fault: unknown) => string = reasonOf,
): Check<Name> {
  const attempted = attempt(find)
  if ('fault' in attempted) return failedCheck(name, attempted.fault, describe)
  return typeof attempted.value === 'string'
    ? { name, outcome: 'passed', detail: attempted.value }
    : { name, outcome: 'not checked', detail: attempted.value.notChecked }
}

/** The check that failed with `fault`. */
export function failedCheck<Name extends string>(
  name: Name,
  fault: unknown,
  describe: (fault: unknown) => string = reasonOf,
): Check<Name> {
  const isOfReader =
    fault instanceof NotAcceptedError ||
    (fault instanceof AttestationError && isOfPolicy(fault.code))
  const failed = { name, outcome: 'failed', detail: describe(fault) } as const
  return isOfReader ? { ...failed, isOfPolicy: true } : failed
}

export function attempt<Value>(produce: () => Value): Attempt<Value> {
  try {
    return { value: produce() }
  } catch (fault) {
    return { fault }
  }
}

export function need<Value>(attempted: Attempt<Value>): Value {
  if ('fault' in attempted) throw attempted.fault
  return attempted.value
}

/** Returns the message of a fault, with its code if it is a fault of an attestation document. */
export function reasonOf(fault: unknown): string {
  if (fault instanceof AttestationError) return `${fault.code}: ${fault.message}`
  return fault instanceof Error ? fault.message : 'unknown fault'
}
