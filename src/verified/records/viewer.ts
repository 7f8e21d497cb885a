import type { Caller } from '../../api/context.ts'
import type { RecordScope } from './records-store.ts'

/** Who asks for records. */
export type Viewer = {
  readonly accountId: string
  /**
   * Whether the key may see the records of all accounts, where the others see only their own (scope
   * `history:all`).
   */
  readonly seesAll: boolean
}

/** Who looks at records with a caller's key. */
export function viewerOf({ accountId, scopes }: Caller): Viewer {
  return { accountId, seesAll: scopes.includes('history:all') }
}

/** Whose records a viewer may see; `isOpen`: every account may see the records of all. */
export function scopeOfViewer({ accountId, seesAll }: Viewer, isOpen: boolean): RecordScope {
  return { accountId: isOpen || seesAll ? null : accountId }
}
