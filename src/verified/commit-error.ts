export type CommitErrorCode =
  | 'notary_gone' //   the enclave that sealed it is gone, and took it along uncommitted: it is lost
  | 'log_diverged' //  the database lost what was acknowledged to the enclave; nothing is committed until that is repaired
  | 'stopped' //       the gateway stops; the leaf is committed after its next start if the enclave lives on

/** Why a leaf that a caller waits for is not committed here and now. */
export class CommitError extends Error {
  override readonly name = 'CommitError'
  readonly code: CommitErrorCode

  constructor(code: CommitErrorCode, message: string) {
    super(message)
    this.code = code
  }
}
