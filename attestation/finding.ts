import { AttestationError } from './nitro/attestation-error.ts'

/**
 * The outcome of one check. Not checked does not mean passed. `detail` says what holds, or what was
 * expected, or why the check was not made.
 */
export type Check<Name extends string> = {
  readonly name: Name
  readonly outcome: 'passed' | 'failed' | 'not checked'
  readonly detail: string
}

/**
 * The result of a check: text when it passed, a reason when it was not made. A failed check throws.
 */
export type Finding = string | { readonly notChecked: string }

/** A value, or the fault that was thrown instead. */
export type Attempt<Value> = { readonly value: Value } | { readonly fault: unknown }

/** Makes a check that throws when it fails, and gives its outcome. `describe` words the fault. */
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

/** The result of `produce`, or the fault that it threw. */
export function attempt<Value>(produce: () => Value): Attempt<Value> {
  try {
    return { value: produce() }
  } catch (fault) {
    return { fault }
  }
}

/** Gives the value, or throws the fault. */
export function need<Value>(attempted: Attempt<Value>): Value {
  if ('fault' in attempted) throw attempted.fault
  return attempted.value
}

/** Describes a fault in words. For an attestation document, the text includes the fault's code. */
export function reasonOf(fault: unknown): string {
  if (fault instanceof AttestationError) return `${fault.code}: ${fault.message}`
  return fault instanceof Error ? fault.message : 'unknown fault'
}
