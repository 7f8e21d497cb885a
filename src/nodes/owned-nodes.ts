import { ApiError } from '../api/errors.ts'
import type { InferencesStore } from './inferences-store.ts'
import { makeNodeId } from './node-ids.ts'
import { nodeBenchmarkReply, nodeInfoReply, nodeListItem, nodeStatsReply } from './node-replies.ts'
import type { NodeBenchmark, NodeHardware, NodesStore, OwnNode, StoredNode } from './nodes-store.ts'

/** New ids that are tried for one node before something must be wrong with the randomness. */
export const NODE_ID_TRIES = 8

/**
 * An account's nodes; what is given is the JSON value of the interface's answer (2.7). Every method that names a node
 * throws ApiError `not_found` when there is none or when it is another account's: which of both is not told.
 */
export type OwnedNodes = {
  /** Throws ApiError `limit_reached` when the account has too many. */
  create(node: { readonly accountId: string; readonly name: string }): Promise<object>
  /** Changes what is not null. Archiving ends the node's connection. */
  update(
    node: OwnNode & { readonly name: string | null; readonly isArchived: boolean | null },
  ): Promise<object>
  /** The account's nodes, oldest first, archived ones too. */
  list(accountId: string): Promise<object>
  info(node: OwnNode): Promise<object>
  saveInfo(node: OwnNode & { readonly hardware: NodeHardware }): Promise<object>
  stats(node: OwnNode): Promise<object>
  /** Throws `not_found` also when there is no benchmark of this model. */
  benchmark(node: OwnNode & { readonly model: string }): Promise<object>
  /** Throws `not_found` also for a node that has not reported its hardware, `limit_reached` for too many models. */
  saveBenchmark(benchmark: OwnNode & Pick<NodeBenchmark, 'model' | 'tokensPerSecond'>): Promise<object>
}

/**
 * Nodes over their stores. `now` is Unix milliseconds, `random` gives so many unpredictable bytes. `onArchived` is told
 * of a node that must not stay connected.
 */
export function createOwnedNodes(options: {
  readonly nodes: NodesStore
  readonly inferences: Pick<InferencesStore, 'stats' | 'servedDay'>
  readonly onArchived: (nodeId: string) => void
  readonly now: () => number
  readonly random: (length: number) => Uint8Array
}): OwnedNodes {
  const { nodes, inferences, onArchived, random } = options
  const unixSeconds = () => Math.floor(options.now() / 1000)

  async function findOwn({ nodeId, accountId }: OwnNode): Promise<StoredNode> {
    const node = await nodes.find(nodeId)
    if (node === null || node.accountId !== accountId) throw unknownNode()
    return node
  }

  async function create({ accountId, name }: { readonly accountId: string; readonly name: string }) {
    for (let tries = 0; tries < NODE_ID_TRIES; tries++) {
      const nodeId = makeNodeId(random)
      const outcome = await nodes.create({ nodeId, accountId, name, createdAt: unixSeconds() })
      if (outcome === 'too_many') throw new ApiError('limit_reached', 'This account has too many nodes')
      if (outcome === 'created') return { response: 'OK', node_id: nodeId }
    }
    throw new Error(`expected a new node id, got ${NODE_ID_TRIES} that were taken`)
  }

  return {
    create,
    async update(node) {
      const updated = await nodes.update(node)
      if (updated === null) throw unknownNode()
      if (node.isArchived) onArchived(node.nodeId)
      return {
        is_name_updated: updated.isNameUpdated,
        is_archival_status_updated: updated.isArchivalUpdated,
      }
    },
    async list(accountId) {
      const now = unixSeconds()
      const [listed, servedDay] = await Promise.all([
        nodes.list(accountId),
        inferences.servedDay(accountId, now),
      ])
      const items = listed.map(({ benchmark, ...node }) =>
        nodeListItem({ node, benchmark, requestsServedDay: servedDay.get(node.nodeId) ?? 0, now }),
      )
      return { response: 'OK', nodes: items }
    },
    info: async (node) => nodeInfoReply(await findOwn(node), unixSeconds()),
    async saveInfo(node) {
      if (!(await nodes.saveHardware({ ...node, at: unixSeconds() }))) throw unknownNode()
      return { response: 'OK' }
    },
    async stats(own) {
      const node = await findOwn(own)
      const [benchmark, stats] = await Promise.all([
        nodes.newestBenchmark(node.nodeId),
        inferences.stats(node.nodeId, unixSeconds()),
      ])
      return nodeStatsReply({ node, benchmark, stats })
    },
    async benchmark({ model, ...own }) {
      const { nodeId } = await findOwn(own)
      const benchmark = await nodes.findBenchmark(nodeId, model)
      if (benchmark === null) throw new ApiError('not_found', 'This node has no benchmark of this model')
      return nodeBenchmarkReply(benchmark)
    },
    async saveBenchmark(benchmark) {
      const outcome = await nodes.saveBenchmark({ ...benchmark, createdAt: unixSeconds() })
      if (outcome === 'unknown_node')
        throw new ApiError(
          'not_found',
          'This account has no such node, or the node has not reported its hardware',
        )
      if (outcome === 'too_many')
        throw new ApiError('limit_reached', 'This node has benchmarks of too many models')
      return { response: 'OK' }
    },
  }
}

function unknownNode(): ApiError {
  return new ApiError('not_found', 'This account has no such node')
}
