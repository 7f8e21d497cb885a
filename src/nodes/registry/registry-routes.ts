import { createAdmission } from '../../api/admission.ts'
import { defineRoute, type Route, type RouteCall } from '../../api/route.ts'
import {
  benchmarkQuery,
  createdNode,
  createNode,
  done,
  networkStatsReply,
  nodeBenchmark,
  nodeBenchmarkReply,
  nodeHistoryQuery,
  nodeHistoryReply,
  nodeInfo,
  nodeInfoReply,
  nodeListReply,
  nodeQuery,
  nodeStatsReply,
  pickHardware,
  updatedNode,
  updateNode,
} from '../protocol/registration.ts'
import type { NetworkStats } from './network-stats.ts'
import type { OwnedNodes } from './owned-nodes.ts'

/** Limits registrations, hardware reports and benchmarks that are read at the same time. */
const REGISTRY_CALLS_MAX = 256
const REGISTRY_BYTES_MAX = 16 * 1024 * 1024

/** A history may cover some hundred thousand rows. */
const HISTORY_CALLS_MAX = 8

/** A body has at most about a dozen short members. */
export const NODE_BODY_BYTES_MAX = 64 * 1024

const EXAMPLE_ID = '3d2c1b0a-0000-4000-8000-000000000000'

const EXAMPLES = {
  info: {
    node_id: EXAMPLE_ID,
    gpu_model: 'RTX 4090',
    vram: 24_576,
    gpu_count: 1,
    power_limit: 450,
    cpu_model: 'Ryzen 9 7950X',
    cpu_count: 16,
    ram: 65_536,
    network_download_speed: 940,
    network_upload_speed: 880,
    operating_system: 'Linux',
  },
  benchmark: { node_id: EXAMPLE_ID, model_name: 'llama-3.1-8b', tokens_per_second: 84.5 },
  create: { node_name: 'my machine' },
  update: { node_id: EXAMPLE_ID, node_name: 'my other machine' },
} as const

/** Routes of contributed nodes (interface, 2.7). */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: declarations of routes
export function nodeRoutes({
  nodes,
  network,
}: {
  readonly nodes: OwnedNodes
  readonly network: NetworkStats
}): readonly Route[] {
  const node = { tag: 'Nodes', scope: 'nodes', errors: ['not_found'] } as const
  /** Options of the routes that every agent calls at each start. */
  const agent = { ...node, isRoutine: true }
  const admission = createAdmission({ callsMax: REGISTRY_CALLS_MAX, bytesMax: REGISTRY_BYTES_MAX })
  const bytesMax = NODE_BODY_BYTES_MAX
  const ok = { name: 'Done', schema: done }
  const accountOf = ({ caller, slot }: Pick<RouteCall, 'caller' | 'slot'>) => {
    // The slot limits bodies that are being read, not calls that wait for the database.
    slot.release()
    return caller().accountId
  }
  return [
    defineRoute({
      ...agent,
      method: 'GET',
      path: '/v1/node/info',
      summary: 'The facts about a node',
      query: nodeQuery,
      reply: { name: 'NodeInfo', schema: nodeInfoReply },
      handler: (call) => nodes.info({ accountId: accountOf(call), nodeId: call.query.node_id }),
    }),
    defineRoute({
      ...agent,
      method: 'POST',
      path: '/v1/node/info',
      summary: "Report a node's hardware",
      body: {
        name: 'NodeInfoRequest',
        schema: nodeInfo,
        bytesMax,
        example: EXAMPLES.info,
      },
      reply: ok,
      admission,
      handler(call) {
        const { node_id: nodeId, ...members } = call.body
        return nodes.saveInfo({
          accountId: accountOf(call),
          nodeId,
          hardware: pickHardware(members),
        })
      },
    }),
    defineRoute({
      ...node,
      method: 'GET',
      path: '/v1/node/stats',
      summary: 'What a node served',
      query: nodeQuery,
      reply: { name: 'NodeStats', schema: nodeStatsReply },
      handler: (call) => nodes.stats({ accountId: accountOf(call), nodeId: call.query.node_id }),
    }),
    defineRoute({
      ...node,
      method: 'GET',
      path: '/v1/node/stats/history',
      summary: 'What a node served in each hour',
      query: nodeHistoryQuery,
      reply: { name: 'NodeHistory', schema: nodeHistoryReply },
      errors: ['not_found', 'overloaded'],
      admission: createAdmission({ callsMax: HISTORY_CALLS_MAX, bytesMax: 0 }),
      handler: ({ caller, query: { node_id: nodeId, hours } }) =>
        nodes.history({ accountId: caller().accountId, nodeId, hours }),
    }),
    defineRoute({
      ...agent,
      method: 'GET',
      path: '/v1/node/benchmark',
      summary: "A node's benchmark of a model",
      query: benchmarkQuery,
      reply: { name: 'NodeBenchmark', schema: nodeBenchmarkReply },
      handler(call) {
        const { node_id: nodeId, model } = call.query
        return nodes.benchmark({ accountId: accountOf(call), nodeId, model })
      },
    }),
    defineRoute({
      ...agent,
      method: 'POST',
      path: '/v1/node/benchmark',
      summary: 'Report a benchmark',
      body: {
        name: 'NodeBenchmarkRequest',
        schema: nodeBenchmark,
        bytesMax,
        example: EXAMPLES.benchmark,
      },
      reply: ok,
      errors: ['not_found', 'limit_reached'],
      admission,
      handler(call) {
        const { node_id: nodeId, model_name: model, tokens_per_second: tokensPerSecond } = call.body
        return nodes.saveBenchmark({ accountId: accountOf(call), nodeId, model, tokensPerSecond })
      },
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/network/stats',
      tag: 'Nodes',
      summary: 'Totals of all nodes',
      scope: 'any',
      reply: { name: 'NetworkStats', schema: networkStatsReply },
      handler: () => network.read(),
    }),
    defineRoute({
      ...node,
      method: 'POST',
      path: '/v1/dashboard/node',
      summary: 'Register a node',
      body: { name: 'CreateNodeRequest', schema: createNode, bytesMax, example: EXAMPLES.create },
      reply: { name: 'CreatedNode', schema: createdNode },
      errors: ['limit_reached'],
      admission,
      handler: (call) => nodes.create({ accountId: accountOf(call), name: call.body.node_name }),
    }),
    defineRoute({
      ...node,
      method: 'PUT',
      path: '/v1/dashboard/node',
      summary: 'Rename or archive a node',
      body: { name: 'UpdateNodeRequest', schema: updateNode, bytesMax, example: EXAMPLES.update },
      reply: { name: 'UpdatedNode', schema: updatedNode },
      admission,
      handler(call) {
        const {
          node_id: nodeId,
          node_name: name = null,
          is_archived: isArchived = null,
        } = call.body
        return nodes.update({ accountId: accountOf(call), nodeId, name, isArchived })
      },
    }),
    defineRoute({
      method: 'GET',
      path: '/v1/dashboard/nodes',
      tag: 'Nodes',
      summary: "The account's nodes",
      scope: 'nodes',
      reply: { name: 'NodeList', schema: nodeListReply },
      handler: (call) => nodes.list(accountOf(call)),
    }),
  ]
}
