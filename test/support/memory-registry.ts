import type { NodeRegistry, RegisteredNode } from '../../src/nodes/admit-node.ts'
import type { InferencesSink } from '../../src/nodes/inference-log.ts'
import type { Inference } from '../../src/nodes/inferences-store.ts'
import type { NodeState } from '../../src/nodes/node-state.ts'

/** What a test registers: a node with benchmarks by model. */
export type Registration = Partial<RegisteredNode> & {
  readonly nodeId: string
  readonly benchmarks?: Readonly<Record<string, number>>
}

/**
 * A node registry in memory, for tests of what stands before the database: it notes what is stored.
 */
export type MemoryRegistry = NodeRegistry & {
  register(node: Registration): void
  change(nodeId: string, change: Partial<RegisteredNode>): void
  stateOf(nodeId: string): NodeState | null | undefined
  /** Everything that was stored, in order: `connected a`, `state a RUNNING`, … */
  readonly writes: string[]
  readonly served: Inference[]
  readonly sink: InferencesSink
}

export const TEST_ACCOUNT = '00000000-0000-4000-8000-000000000001'

export function createMemoryRegistry(): MemoryRegistry {
  const nodes = new Map<string, RegisteredNode>()
  const benchmarks = new Map<string, number>()
  const writes: string[] = []
  const served: Inference[] = []

  const change = (nodeId: string, changes: Partial<RegisteredNode>) => {
    const node = nodes.get(nodeId)
    if (node !== undefined) nodes.set(nodeId, { ...node, ...changes })
  }

  return {
    writes,
    served,
    sink: { add: async (rows) => void served.push(...rows) },
    register({ benchmarks: speeds = {}, ...node }) {
      const fresh = { accountId: TEST_ACCOUNT, isArchived: false, state: null, hardware: null }
      nodes.set(node.nodeId, { ...fresh, ...node })
      for (const [model, speed] of Object.entries(speeds))
        benchmarks.set(`${node.nodeId} ${model}`, speed)
    },
    change,
    stateOf: (nodeId) => nodes.get(nodeId)?.state,
    find: async (nodeId) => nodes.get(nodeId) ?? null,
    async findBenchmark(nodeId, model) {
      const tokensPerSecond = benchmarks.get(`${nodeId} ${model}`)
      return tokensPerSecond === undefined ? null : { tokensPerSecond }
    },
    async setState(nodeId, state) {
      writes.push(`state ${nodeId} ${state}`)
      change(nodeId, { state })
    },
    async markConnected(nodeId, _at, models) {
      writes.push(`connected ${nodeId} ${models.join(',')}`)
      return true
    },
    async markDisconnected(nodeId) {
      writes.push(`disconnected ${nodeId}`)
    },
    async markSeen(nodeIds) {
      writes.push(`seen ${nodeIds.join(',')}`)
    },
  }
}
