/**
 * There is no connection to the database, or the connection broke during a query. The query may
 * still have been carried out. `cause` is the driver's error.
 */
export class DatabaseAwayError extends Error {
  override readonly name = 'DatabaseAwayError'
}

/**
 * True if the server refuses a value (SQLSTATE class 22), so that the same query fails each time.
 */
export function isValueRefused(error: unknown): boolean {
  return error instanceof Error && 'code' in error && /^22\w{3}$/.test(String(error.code))
}

/**
 * Returns the message of an error. If several addresses refuse a connection, the driver's error has
 * an empty message, and contains an error for each address.
 */
export function driverReason(error: unknown): string {
  const first = error instanceof AggregateError ? error.errors[0] : error
  return first instanceof Error ? first.message : 'unknown fault'
}

/**
 * The server's settings do not meet our requirements, or a version before the first release made
 * the database. The message states the correction.
 */
export class DatabaseUnfit extends Error {
  override readonly name = 'DatabaseUnfit'
}

/**
 * A newer release changed the schema, so this release may not be able to use the database. The
 * message states the correction.
 */
export class DatabaseNewer extends Error {
  override readonly name = 'DatabaseNewer'
  constructor(migrations: readonly string[]) {
    super(
      `the database is newer than this release, which does not know ${migrations.length === 1 ? 'its migration' : 'its migrations'} ${migrations.join(', ')}: ` +
        'start the newer release, or restore the dump that was made before the upgrade (deploy/runbooks/upgrade-and-downgrade.md)',
    )
  }
}

export type ContentFault = 'content_key_missing' | 'content_unreadable'

/** Only the content cannot be decrypted. The other parts of its record can be read. */
export class ContentUnavailable extends Error {
  override readonly name = 'ContentUnavailable'
  readonly code: ContentFault

  constructor(code: ContentFault, options: ErrorOptions = {}) {
    super(CONTENT_FAULTS[code], options)
    this.code = code
  }
}

/** The messages that callers receive. */
export const CONTENT_FAULTS: Readonly<Record<ContentFault, string>> = {
  content_key_missing: 'The key that this content is encrypted under is not available',
  content_unreadable: 'This content cannot be decrypted: its stored bytes were altered',
}
