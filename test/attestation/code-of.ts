import { FormatError, ProofError } from '#attestation/errors.ts'

/** The code with which `run` refuses, `accepted` if it does not. Other errors are thrown on. */
export function codeOf(run: () => unknown): string {
  try {
    run()
  } catch (error) {
    if (error instanceof FormatError || error instanceof ProofError) return error.code
    throw error
  }
  return 'accepted'
}
