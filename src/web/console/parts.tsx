import type { ComponentType } from 'preact'
import type { Scope } from '../../api/context.ts'
import { AccountsPart } from './accounts-part.tsx'
import { AnchorsPart } from './anchors-part.tsx'
import { EnclavesPart } from './enclaves-part.tsx'
import { HistoryPart } from './history-part.tsx'
import { KeysPart } from './keys-part.tsx'
import { LimitsPart } from './limits-part.tsx'
import { NodesPart } from './nodes-part.tsx'
import { PlaygroundPart } from './playground/playground-part.tsx'
import { TrailPart } from './trail-part.tsx'

export type Part = {
  /** Last segment of the part's path: `keys` in `/console/keys`. */
  readonly id: string
  readonly name: string
  /** Null if every key may see the part. */
  readonly scope: Scope | null
  readonly show: ComponentType
  /**
   * True if the part stays in the page while another part is shown, so that its conversation is not
   * lost.
   */
  readonly isKept?: boolean
}

/** In the order of the menu. The first part that the key may see opens at the start. */
export const PARTS: readonly Part[] = [
  {
    id: 'playground',
    name: 'Playground',
    scope: 'inference',
    show: PlaygroundPart,
    isKept: true,
  },
  { id: 'history', name: 'History', scope: 'inference', show: HistoryPart },
  { id: 'nodes', name: 'Nodes', scope: 'nodes', show: NodesPart },
  { id: 'keys', name: 'Keys', scope: null, show: KeysPart },
  { id: 'limits', name: 'Limits and usage', scope: 'inference', show: LimitsPart },
  { id: 'accounts', name: 'Accounts', scope: 'admin', show: AccountsPart },
  { id: 'enclaves', name: 'Enclaves', scope: 'admin', show: EnclavesPart },
  { id: 'anchors', name: 'Anchors', scope: 'admin', show: AnchorsPart },
  { id: 'administration', name: 'Administration', scope: 'admin', show: TrailPart },
]

export function pathOf({ id }: Pick<Part, 'id'>): string {
  return `${CONSOLE_PATH}/${id}`
}

/** Null for the path of the console itself. */
export function partIdOf(path: string): string | null {
  const [, id = ''] = /^\/console\/([^/]+)\/?$/.exec(path) ?? []
  return id === '' ? null : id
}

const CONSOLE_PATH = '/console'
