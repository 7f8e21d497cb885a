export type FaultKind<Fault extends Error> = abstract new (...given: never) => Fault

/** Returns null if `run` throws an error of one of these kinds. Passes on other errors. */
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
