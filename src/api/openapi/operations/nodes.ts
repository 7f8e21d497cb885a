import {
  benchmarkQuery,
  createNode,
  networkStatsReply,
  nodeBenchmark,
  nodeBenchmarkReply,
  nodeInfo,
  nodeInfoReply,
  nodeListReply,
  nodeQuery,
  nodeStatsReply,
  updateNode,
} from '../../../nodes/protocol/registration.ts'
import { createdNode, done, updatedNode } from '../../service-replies.ts'
import type { Operation } from '../operation.ts'

const node = {
  tag: 'Nodes',
  isKeyed: true,
  scope: 'nodes',
  errors: ['not_found'],
} satisfies Partial<Operation>
const ok = { name: 'Done', schema: done }

/** Contributed nodes, and the network of them. */
export const nodeOperations: readonly Operation[] = [
  {
    ...node,
    method: 'GET',
    path: '/v1/node/info',
    summary: 'What a node is',
    query: nodeQuery,
    reply: { name: 'NodeInfo', schema: nodeInfoReply },
  },
  {
    ...node,
    method: 'POST',
    path: '/v1/node/info',
    summary: "Report a node's hardware",
    body: { name: 'NodeInfoRequest', schema: nodeInfo },
    reply: ok,
  },
  {
    ...node,
    method: 'GET',
    path: '/v1/node/stats',
    summary: 'What a node served',
    query: nodeQuery,
    reply: { name: 'NodeStats', schema: nodeStatsReply },
  },
  {
    ...node,
    method: 'GET',
    path: '/v1/node/benchmark',
    summary: "A node's benchmark of a model",
    query: benchmarkQuery,
    reply: { name: 'NodeBenchmark', schema: nodeBenchmarkReply },
  },
  {
    ...node,
    method: 'POST',
    path: '/v1/node/benchmark',
    summary: 'Report a benchmark',
    body: { name: 'NodeBenchmarkRequest', schema: nodeBenchmark },
    reply: ok,
    errors: ['not_found', 'limit_reached'],
  },
  {
    method: 'GET',
    path: '/v1/network/stats',
    tag: 'Nodes',
    summary: 'What all nodes do together',
    isKeyed: true,
    reply: { name: 'NetworkStats', schema: networkStatsReply },
  },
  {
    ...node,
    method: 'POST',
    path: '/v1/dashboard/node',
    summary: 'Register a node',
    body: { name: 'CreateNodeRequest', schema: createNode },
    reply: { name: 'CreatedNode', schema: createdNode },
    errors: ['limit_reached'],
  },
  {
    ...node,
    method: 'PUT',
    path: '/v1/dashboard/node',
    summary: 'Rename or archive a node',
    body: { name: 'UpdateNodeRequest', schema: updateNode },
    reply: { name: 'UpdatedNode', schema: updatedNode },
  },
  {
    method: 'GET',
    path: '/v1/dashboard/nodes',
    tag: 'Nodes',
    summary: "The account's nodes",
    isKeyed: true,
    scope: 'nodes',
    reply: { name: 'NodeList', schema: nodeListReply },
  },
]
