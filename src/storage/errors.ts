/**
 * There is no connection to the database, or the one that a query ran on broke: whether that query
 * was carried out is not known. The driver's error is the cause.
 */
export class DatabaseAwayError extends Error {
  override readonly name = 'DatabaseAwayError'
}

/**
 * The server is reachable, but its settings would break a promise; the message says which and what
 * to do.
 */
export class DatabaseUnfit extends Error {
  override readonly name = 'DatabaseUnfit'
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
