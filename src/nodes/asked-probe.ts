import type { NodeLimits } from './limits.ts'
import type { Lane } from './node-index.ts'
import type { Slot } from './slots.ts'

/** A probe of one lane, which has a slot for it. */
export type AskedProbe = {
  readonly lane: Lane
  readonly slot: Slot
  readonly signal: AbortSignal
  readonly limits: NodeLimits
}

/** Errors after which a probe showed nothing: also of a node whose backend is at its limit. */
export const BROKEN_OFF: ReadonlySet<string> = new Set(['node_lost', 'node_busy', 'stopping'])
