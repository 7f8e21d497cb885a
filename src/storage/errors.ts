/**
 * There is no connection to the database, or it broke during a query. The database may or may not
 * have carried out that query. `cause` is the driver's error.
 */
export class DatabaseAwayError extends Error {
  override readonly name = 'DatabaseAwayError'
}

/**
 * The server answers, but its settings do not meet our requirements, or its schema is older than
 * the first release. The message states the reason and the correction.
 */
export class DatabaseUnfit extends Error {
  override readonly name = 'DatabaseUnfit'
}

/**
 * A newer release has changed the schema, so this release's data may not fit. The message names the
 * migrations and states the correction.
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

/**
 * Another process has the data folder open. The user must stop it, or give this process another
 * folder.
 */
export class DataFolderInUse extends Error {
  override readonly name = 'DataFolderInUse'
  constructor(folder: string, pid: number) {
    super(
      `expected the data folder for ourselves, but process ${pid} has it open: ${folder}. ` +
        'Stop that process, or set DATA_DIR to another folder.',
    )
  }
}

/** Why encrypted content cannot be read. */
export type ContentFault = 'content_key_missing' | 'content_unreadable'

/**
 * Stored content cannot be decrypted: its key is missing or its bytes were changed. The other parts
 * of its record can be read.
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
