/** A class of errors. */
export type FaultKind<Fault extends Error> = abstract new (...given: never) => Fault

/**
 * Returns the result of `run`, or null if it throws a fault of these kinds. Throws any other fault.
 */
export function orNull<Value>(
  run: () => Value,
  ...kinds: readonly FaultKind<Error>[]
): Value | null {
  try {
    return run()
  } catch (fault) {
    if (kinds.some((kind) => fault instanceof kind)) return null
    throw fault
  }
}
