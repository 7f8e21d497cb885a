import { FormatError, ProofError } from '../errors.ts'

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

/** A FormatError of `read` becomes the error that `refuse` makes for `code`. */
export function orRefuse<Code extends string, Value>(
  refuse: (code: Code, message: string) => ProviderEvidenceError<Code>,
  code: Code,
  read: () => Value,
): Value {
  try {
    return read()
  } catch (fault) {
    if (fault instanceof FormatError) throw refuse(code, fault.message)
    throw fault
  }
}
