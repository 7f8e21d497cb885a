import type { FaultKind } from '../../attestation/or-null.ts'

/** The exit codes, which mean the same in every command. */
export const EXIT_CODES = {
  /** The command succeeded. For a check: nothing failed. */
  done: 0,
  /** The command failed. For a check: something failed. */
  failed: 1,
  /** The command line was wrong. Nothing was tried. */
  usage: 2,
  /** The command has no result: a file or a service that it needs is missing or refused. */
  unavailable: 3,
} as const

/**
 * A command cannot continue, for a reason that its user can fix. The user sees only the message.
 */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly exitCode: number

  constructor(message: string, exitCode: number = EXIT_CODES.failed) {
    super(message)
    this.exitCode = exitCode
  }
}

/**
 * The gateway or the database refused an order. The message is shown, unless the command has its
 * own words.
 */
export class ActRefused extends CliError {
  /** Code from the error envelope; null without a code. */
  readonly code: string | null

  constructor(code: string | null, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Gives the result of an order. For a refusal with one of these codes, the message is replaced by
 * `words`.
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
 * Gives the result of `run`. When `run` throws a fault of this kind, throws the error that
 * `toError` makes from it.
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
