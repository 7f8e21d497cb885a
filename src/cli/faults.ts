import type { FaultKind } from '../../attestation/or-null.ts'

/** What the command line's exit codes mean, in every command. */
export const EXIT_CODES = {
  /** It was done; of a check: nothing failed. */
  done: 0,
  /** It could not be done; of a check: something failed. */
  failed: 1,
  /** The command was not understood: nothing was tried. */
  usage: 2,
  /** There is no result: a file or a service that it takes is not there, or refused. */
  unavailable: 3,
} as const

/** A command cannot go on, for a reason that its user can mend. The user sees the message alone. */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly exitCode: number

  constructor(message: string, exitCode: number = EXIT_CODES.failed) {
    super(message)
    this.exitCode = exitCode
  }
}

/**
 * What `run` gives. When `run` throws a fault of this kind, the error that `tell` makes from it is
 * thrown instead.
 */
export function convertFault<Value, Fault extends Error>(
  run: () => Value,
  kind: FaultKind<Fault>,
  toError: (fault: Fault) => Error,
): Value {
  try {
    return run()
  } catch (fault) {
    if (fault instanceof kind) throw toError(fault)
    throw fault
  }
}
