export type FaultKind<Fault extends Error> = abstract new (...given: never) => Fault

/** Null if `run` throws one of these kinds. Other faults are thrown. */
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
