import type { Caller } from '../../api/context.ts'
import type { RecordScope } from './records-store.ts'

/** The account and the rights of a reader of records. */
export type Viewer = {
  readonly accountId: string
  /**
   * True if the key may see the records of all accounts (scope `history:all`), not only the records
   * of its account.
   */
  readonly seesAll: boolean
}

/** Returns the viewer for a caller's key. */
export function viewerOf({ accountId, scopes }: Caller): Viewer {
  return { accountId, seesAll: scopes.includes('history:all') }
}

/** Which records a viewer may see. `isOpen`: every account may see all records. */
export function scopeOfViewer({ accountId, seesAll }: Viewer, isOpen: boolean): RecordScope {
  return { accountId: isOpen || seesAll ? null : accountId }
}
