import { FormatError, ProofError } from '../errors.ts'

/**
 * The evidence of a provider does not prove what it claims. `code` is stable and snake_case. Within
 * a folder, two checks of rules.md never share a code. The message says what was expected and
 * where. It never contains bytes of the evidence.
 */
export class ProviderEvidenceError<Code extends string = string> extends ProofError {
  override readonly name = 'ProviderEvidenceError'
  declare readonly code: Code

  constructor(code: Code, message: string) {
    super(code, message)
  }
}

/** Returns the result of `read`. Replaces a FormatError by the error `refuse(code, …)`. */
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
