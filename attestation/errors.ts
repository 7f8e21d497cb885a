/**
 * Input that does not have the form it must have. Its reader fixes the input. `code` is stable,
 * snake_case, and distinct for each check; the message says what was expected and where, and never
 * carries a value of the input.
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
 * Well-formed evidence that does not prove what it claims: a signature of another key, a path to
 * another root. Its reader stops trusting the evidence. `code` is stable, snake_case, and distinct
 * for each check.
 */
export class ProofError extends Error {
  override readonly name: string = 'ProofError'
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}
