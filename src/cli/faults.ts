import type { Verdict } from '#attestation/evidence/verdict.ts'
import type { FaultKind } from '#attestation/or-null.ts'

export const EXIT_CODES = {
  /** The command succeeded. A check: VERIFIED. */
  done: 0,
  /** The command failed. A check: INVALID or NOT ACCEPTED. */
  failed: 1,
  /** The command line was wrong. Nothing was tried. */
  usage: 2,
  /**
   * The command has no result, because a file or a service is missing or was refused. A check:
   * INCOMPLETE.
   */
  unavailable: 3,
} as const

export function exitCodeOf(verdict: Verdict): number {
  if (verdict === 'incomplete') return EXIT_CODES.unavailable
  return verdict === 'verified' ? EXIT_CODES.done : EXIT_CODES.failed
}

/** Returns the code of a command that did several things: the code of the worst result. */
export function worstOf(codes: readonly number[]): number {
  const { failed, usage, unavailable, done } = EXIT_CODES
  return [failed, usage, unavailable].find((code) => codes.includes(code)) ?? done
}

/** A command cannot continue, and its user can remove the cause. Only the message is shown. */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly exitCode: number

  constructor(message: string, exitCode: number = EXIT_CODES.failed) {
    super(message)
    this.exitCode = exitCode
  }
}

/** The gateway or the database refused an act. The command can replace the message. */
export class ActRefused extends CliError {
  /** Code from the error envelope. Null if there is no code. */
  readonly code: string | null

  constructor(code: string | null, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Returns the result of `asked`. If `asked` is refused with a code that `words` has, throws
 * CliError with the text of that code.
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

/** If `run` throws a fault of the class `kind`, throws the error that `toError` makes. */
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
