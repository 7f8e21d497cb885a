import type { ConnectionRegistry, RegisteredNode } from '#src/nodes/hub/admit-node.ts'
import type { InferencesSink } from '#src/nodes/registry/inference-log.ts'
import type { Inference } from '#src/nodes/registry/inferences-store.ts'
import { type NodeState, stopState } from '#src/nodes/registry/node-state.ts'

/** A node that a test registers, with benchmarks by model. */
export type Registration = Partial<RegisteredNode> & {
  readonly nodeId: string
  readonly benchmarks?: Readonly<Record<string, number>>
}

/** A node registry in memory, for tests without a database: it records what is stored. */
export type MemoryRegistry = ConnectionRegistry & {
  register(node: Registration): void
  change(nodeId: string, change: Partial<RegisteredNode>): void
  stateOf(nodeId: string): NodeState | null | undefined
  /** Everything that was stored, in order: `connected a`, `state a RUNNING`, … */
  readonly writes: string[]
  readonly served: Inference[]
  readonly sink: InferencesSink
}

export const TEST_ACCOUNT = '00000000-0000-4000-8000-000000000001'
export const TEST_PROCESS = '00000000-0000-4000-8000-00000000000a'

export function createMemoryRegistry(): MemoryRegistry {
  const nodes = new Map<string, RegisteredNode>()
  const benchmarks = new Map<string, number>()
  const writes: string[] = []
  const served: Inference[] = []

  const change = (nodeId: string, changes: Partial<RegisteredNode>) => {
    const node = nodes.get(nodeId)
    if (node !== undefined) nodes.set(nodeId, { ...node, ...changes })
  }

  /** A disabled node stays disabled, as in the database. */
  const keep = (nodeId: string, state: NodeState) => {
    const isDisabled = nodes.get(nodeId)?.state?.endsWith('_DISABLED') ?? false
    const kept = stopState(state) === state ? 'STOPPED_DISABLED' : 'RUNNING_DISABLED'
    writes.push(`state ${nodeId} ${isDisabled ? kept : state}`)
    change(nodeId, { state: isDisabled ? kept : state })
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
    async setState({ nodeId }, state) {
      keep(nodeId, state)
    },
    async markConnected({ nodeId, models, state }) {
      writes.push(`connected ${nodeId} ${models.join(',')}`)
      keep(nodeId, state)
      return true
    },
    async markDisconnected({ nodeId }, { state }) {
      writes.push(`disconnected ${nodeId}`)
      keep(nodeId, state)
    },
    async markSeen(connections) {
      writes.push(`seen ${connections.map(({ nodeId }) => nodeId).join(',')}`)
      return new Set(connections.map(({ nodeId }) => nodeId))
    },
    async endAbandoned() {
      return 0
    },
  }
}
