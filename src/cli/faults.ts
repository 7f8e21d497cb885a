import type { FaultKind } from '../../attestation/or-null.ts'

/** The exit codes, which mean the same in every command. */
export const EXIT_CODES = {
  /** The command succeeded. For a check, this means that nothing failed. */
  done: 0,
  /** The command failed. For a check, this means that something failed. */
  failed: 1,
  /** The command line was wrong. Nothing was tried. */
  usage: 2,
  /**
   * The command has no result, because a file or a service that it needs is missing or was refused.
   */
  unavailable: 3,
} as const

/** A command cannot continue, and its user can remove the cause. The user sees only the message. */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly exitCode: number

  constructor(message: string, exitCode: number = EXIT_CODES.failed) {
    super(message)
    this.exitCode = exitCode
  }
}

/**
 * The gateway or the database refused an order. The message is shown, unless the command replaces
 * it.
 */
export class ActRefused extends CliError {
  /** Code from the error envelope. Null if there is no code. */
  readonly code: string | null

  constructor(code: string | null, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Returns the result of an order. If the order is refused with one of the codes in `words`, the
 * message is replaced by the text in `words`.
 */
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
 * Runs `run` and returns its result. If `run` throws a fault of this kind, throws the error that
 * `toError` makes from the fault.
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
