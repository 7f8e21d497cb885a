/** What the command line's exit codes mean, in every command. */
export const EXIT_CODES = {
  /** It was done; of a check: nothing failed. */
  done: 0,
  /** It could not be done; of a check: something failed. */
  failed: 1,
  /** The command was not understood: nothing was tried. */
  usage: 2,
} as const

/**
 * A command cannot go on, for a reason that its user can mend. The message is all they are told.
 */
export class CliError extends Error {
  override readonly name = 'CliError'
  readonly exitCode: number

  constructor(message: string, exitCode: number = EXIT_CODES.failed) {
    super(message)
    this.exitCode = exitCode
  }
}
