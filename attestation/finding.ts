import { AttestationError } from './nitro/attestation-error.ts'

/**
 * One check's outcome. Not checked is not passed: `detail` says why, or what was expected, or what
 * holds.
 */
export type Check<Name extends string> = {
  readonly name: Name
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
}

/**
 * What a check found: text when it passed, a reason when it was not made. It throws when it failed.
 */
export type Finding = string | { readonly notChecked: string }

/** A value, or the fault that prevented it. */
export type Attempt<Value> = { readonly value: Value } | { readonly fault: unknown }

/** The outcome of a check that throws when it fails. `describe` puts its fault into words. */
export function check<Name extends string>(
  name: Name,
  find: () => Finding,
  describe: (fault: unknown) => string = reasonOf,
): Check<Name> {
  const attempted = attempt(find)
  if ('fault' in attempted) return { name, outcome: 'failed', detail: describe(attempted.fault) }
  return typeof attempted.value === 'string'
    ? { name, outcome: 'passed', detail: attempted.value }
    : { name, outcome: 'not checked', detail: attempted.value.notChecked }
}

/** What `produce` gives, or the fault that it threw. */
export function attempt<Value>(produce: () => Value): Attempt<Value> {
  try {
    return { value: produce() }
  } catch (fault) {
    return { fault }
  }
}

/** The value; throws the fault when there is no value. */
export function need<Value>(attempted: Attempt<Value>): Value {
  if ('fault' in attempted) throw attempted.fault
  return attempted.value
}

/** A fault in words, one of an attestation document with its code. */
export function reasonOf(fault: unknown): string {
  if (fault instanceof AttestationError) return `${fault.code}: ${fault.message}`
  return fault instanceof Error ? fault.message : 'unknown fault'
}
