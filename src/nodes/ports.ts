import type { Inference } from './inferences-store.ts'
import type { NodesStore, StoredNode } from './nodes-store.ts'

/** What of a registered node matters to its connection. */
export type RegisteredNode = Pick<StoredNode, 'nodeId' | 'accountId' | 'isArchived' | 'state'> & {
  readonly hardware: { readonly vram: number | null } | null
}

/** The node registry, as far as connections need it: a NodesStore is one. */
export type NodeRegistry = Pick<
  NodesStore,
  'setState' | 'markConnected' | 'markDisconnected' | 'markSeen'
> & {
  find(nodeId: string): Promise<RegisteredNode | null>
  findBenchmark(nodeId: string, model: string): Promise<{ readonly tokensPerSecond: number } | null>
}

/** Where served runs are kept: an InferencesStore is one. */
export type InferencesSink = { add(rows: readonly Inference[]): Promise<unknown> }
