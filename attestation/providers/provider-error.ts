import { ProofError } from '../errors.ts'

/**
 * A provider's evidence does not prove its claim. `code` is stable, snake_case, and distinct for
 * each check of a folder's rules.md. The message says what was expected and where. It never
 * contains bytes of the evidence.
 */
export class ProviderEvidenceError<Code extends string = string> extends ProofError {
  override readonly name = 'ProviderEvidenceError'
  declare readonly code: Code

  constructor(code: Code, message: string) {
    super(code, message)
  }
}
