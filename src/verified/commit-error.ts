export type CommitErrorCode =
  | 'notary_gone' // the enclave that sealed the leaf is gone, and the leaf is lost
  | 'log_diverged' // the database lost acknowledged leaves; commits stop until it is repaired
  | 'stopped' // the gateway stops; its next start commits the leaf if the enclave still runs

/** The leaf that a caller waits for is not committed. */
export class CommitError extends Error {
  override readonly name = 'CommitError'
  readonly code: CommitErrorCode

  constructor(code: CommitErrorCode, message: string) {
    super(message)
    this.code = code
  }
}
