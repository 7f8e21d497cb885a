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

/** The gateway, or the database, refused an order; without a command's own words it is shown. */
export class ActRefused extends CliError {
  /** As in the error envelope; null without one. */
  readonly code: string | null

  constructor(code: string | null, message: string) {
    super(message)
    this.code = code
  }
}

/** Gives what an order gives. Of a refusal with one of these codes, the message is `words`. */
export async function inWords<Reply>(
  asked: Promise<Reply>,
  words: Readonly<Record<string, string>>,
): Promise<Reply> {
  try {
    return await asked
  } catch (fault) {
    const word = fault instanceof ActRefused && fault.code !== null ? words[fault.code] : undefined
    if (word === undefined) throw fault
    throw new CliError(word)
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
