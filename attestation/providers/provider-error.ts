import { FormatError, ProofError } from '../errors.ts'

/**
 * The evidence of a provider does not prove what it claims. `code` is stable and snake_case. Within
 * a folder, different checks of rules.md have different codes. The message says what was expected
 * and where. It never contains bytes of the evidence.
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
