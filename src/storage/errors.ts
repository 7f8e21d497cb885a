/**
 * There is no connection to the database, or the one that a query ran on broke: whether that query
 * was carried out is not known. The driver's error is the cause.
 */
export class DatabaseAwayError extends Error {
  override readonly name = 'DatabaseAwayError'
}

/**
 * The server is reachable, but its settings would break a promise, or its schema is older than the
 * first release; the message says which and what to do.
 */
export class DatabaseUnfit extends Error {
  override readonly name = 'DatabaseUnfit'
}

/**
 * A newer release has changed the schema: what this one would write may not fit there. The message
 * names the migrations and says what to do.
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

/** Another process has the data folder open. Stop it, or give this one a folder of its own. */
export class DataFolderInUse extends Error {
  override readonly name = 'DataFolderInUse'
  constructor(folder: string, pid: number) {
    super(
      `expected the data folder for ourselves, but process ${pid} has it open: ${folder}. ` +
        'Stop that process, or set DATA_DIR to another folder.',
    )
  }
}

/** Why content that is stored encrypted cannot be given. */
export type ContentFault = 'content_key_missing' | 'content_unreadable'

/**
 * Stored content cannot be decrypted: its key is not among those that were given, or its bytes are
 * not those that were stored for it. What else there is of its record can be read.
 */
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
