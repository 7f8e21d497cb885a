import type { Router } from '@koa/router'
import type { Admission } from '../api/admission.ts'
import { callerOf } from '../api/authenticate.ts'
import {
  type ApiMiddleware,
  type RequestState,
  type RouteContext,
  type RouteHandler,
  sendJson,
} from '../api/context.ts'
import { validateBody } from '../api/json-body.ts'
import { type QueryParameters, validateParameters } from '../api/parameters.ts'
import { readJsonBody } from '../api/read-body.ts'
import type { OwnedNodes } from './owned-nodes.ts'
import {
  benchmarkQuery,
  createNode,
  nodeBenchmark,
  nodeInfo,
  nodeQuery,
  pickHardware,
  updateNode,
} from './protocol/registration.ts'

/** The bodies of all these routes are a dozen short members. */
export const NODE_BODY_BYTES_MAX = 64 * 1024

export type NodeRouteOptions = {
  readonly nodes: OwnedNodes
  readonly authenticated: ApiMiddleware
  /** For the calls that have a body. */
  readonly admission: Admission
}

/** Routes of contributed nodes (interface, 2.7): registration, hardware, benchmarks and statistics. */
export function addNodeRoutes(router: Router<RequestState>, options: NodeRouteOptions): void {
  const { nodes, authenticated, admission } = options
  const accountOf = ({ state }: RouteContext) => callerOf(state).accountId

  /** Answers with what `serve` makes of the request, whose body is read when it has one. */
  const answer =
    (serve: (context: RouteContext, accountId: string) => Promise<object>): RouteHandler =>
    async (context) =>
      sendJson(context, JSON.stringify(await serve(context, accountOf(context))))

  const answerBody = (serve: (body: Uint8Array, accountId: string) => Promise<object>): RouteHandler =>
    answer(async (context, accountId) => serve(await readBody(context, admission), accountId))

  const dashboard = '/v1/dashboard/node'
  router.post(
    dashboard,
    authenticated,
    answerBody((body, accountId) => nodes.create({ accountId, ...parseCreateNode(body) })),
  )
  router.put(
    dashboard,
    authenticated,
    answerBody((body, accountId) => nodes.update({ accountId, ...parseUpdateNode(body) })),
  )
  router.get(
    '/v1/dashboard/nodes',
    authenticated,
    answer((_, accountId) => nodes.list(accountId)),
  )

  const info = '/v1/node/info'
  router.get(
    info,
    authenticated,
    answer(({ query }, accountId) => nodes.info({ accountId, ...parseNodeQuery(query) })),
  )
  router.post(
    info,
    authenticated,
    answerBody((body, accountId) => nodes.saveInfo({ accountId, ...parseNodeInfo(body) })),
  )

  const stats = '/v1/node/stats'
  router.get(
    stats,
    authenticated,
    answer(({ query }, accountId) => nodes.stats({ accountId, ...parseNodeQuery(query) })),
  )

  const benchmark = '/v1/node/benchmark'
  router.get(
    benchmark,
    authenticated,
    answer(({ query }, accountId) => nodes.benchmark({ accountId, ...parseBenchmarkQuery(query) })),
  )
  router.post(
    benchmark,
    authenticated,
    answerBody((body, accountId) => nodes.saveBenchmark({ accountId, ...parseNodeBenchmark(body) })),
  )
}

async function readBody({ req, res }: RouteContext, admission: Admission): Promise<Uint8Array> {
  const slot = admission.admit()
  try {
    return await readJsonBody(req, res, { slot, bytesMax: NODE_BODY_BYTES_MAX })
  } finally {
    slot.release()
  }
}

function parseCreateNode(body: Uint8Array): { readonly name: string } {
  return { name: validateBody(createNode, body).node_name }
}

function parseUpdateNode(body: Uint8Array) {
  const { node_id: nodeId, node_name: name, is_archived: isArchived } = validateBody(updateNode, body)
  return { nodeId, name: name ?? null, isArchived: isArchived ?? null }
}

function parseNodeInfo(body: Uint8Array) {
  const { node_id: nodeId, ...members } = validateBody(nodeInfo, body)
  return { nodeId, hardware: pickHardware(members) }
}

function parseNodeBenchmark(body: Uint8Array) {
  const benchmark = validateBody(nodeBenchmark, body)
  return {
    nodeId: benchmark.node_id,
    model: benchmark.model_name,
    tokensPerSecond: benchmark.tokens_per_second,
  }
}

function parseNodeQuery(parameters: QueryParameters): { readonly nodeId: string } {
  return { nodeId: validateParameters('query', nodeQuery, parameters).node_id }
}

function parseBenchmarkQuery(parameters: QueryParameters) {
  const { node_id: nodeId, model } = validateParameters('query', benchmarkQuery, parameters)
  return { nodeId, model }
}
