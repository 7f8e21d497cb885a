import type { Caller } from '../../api/context.ts'
import type { RecordScope } from './records-store.ts'

/** The account and the rights that records are read with. */
export type Viewer = {
  readonly accountId: string
  /**
   * Whether the key may see the records of all accounts (scope `history:all`). Other keys see only
   * their own account's records.
   */
  readonly seesAll: boolean
}

/** Gives the viewer that a caller's key stands for. */
export function viewerOf({ accountId, scopes }: Caller): Viewer {
  return { accountId, seesAll: scopes.includes('history:all') }
}

/** Which records a viewer may see. `isOpen`: every account may see all records. */
export function scopeOfViewer({ accountId, seesAll }: Viewer, isOpen: boolean): RecordScope {
  return { accountId: isOpen || seesAll ? null : accountId }
}
