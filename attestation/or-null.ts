/** A class of errors. */
export type FaultKind<Fault extends Error> = abstract new (...given: never) => Fault

/** Returns the result of `run`, or null if it throws one of these kinds. Throws other faults. */
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
