import type { Caller } from '../../api/context.ts'
import type { RecordScope } from './records-store.ts'

export type Viewer = {
  readonly accountId: string
  /** With the scope `history:all`, a key may see the records of all accounts. */
  readonly seesAll: boolean
}

export function viewerOf({ accountId, scopes }: Caller): Viewer {
  return { accountId, seesAll: scopes.includes('history:all') }
}

/** `isOpen`: every account may see all records. */
export function scopeOfViewer({ accountId, seesAll }: Viewer, isOpen: boolean): RecordScope {
  return { accountId: isOpen || seesAll ? null : accountId }
}
