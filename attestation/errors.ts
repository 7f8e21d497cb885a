/**
 * The input has a wrong form. `code` is stable, snake_case, and distinct for each check. The
 * message says what was expected and where, and never contains a value of the input.
 */
export class FormatError extends Error {
  override readonly name: string = 'FormatError'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * The evidence is well-formed, but does not prove its claim: for example, another key signed it.
 * `code` is stable, snake_case, and distinct for each check.
 */
export class ProofError extends Error {
  override readonly name: string = 'ProofError'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/**
 * Nothing contradicts the evidence, but the reader's policy does not accept it: for example, it is
 * of another release. The message says what was expected, and what was found.
 */
export class NotAcceptedError extends ProofError {
  override readonly name = 'NotAcceptedError'
}
