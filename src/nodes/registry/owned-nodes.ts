import { wordlists } from 'ethers'
import type { z } from 'zod'
import { ApiError } from '../../api/errors.ts'
import {
  type NodeHardware,
  type nodeBenchmarkReply,
  type nodeHistoryReply,
  type nodeInfoReply,
  type nodeListReply,
  type nodeStatsReply,
  pickHardware,
} from '../protocol/registration.ts'
import {
  HOUR_SECONDS,
  type InferencesStore,
  type NodeHour,
  type NodeStats,
} from './inferences-store.ts'
import { statusText } from './node-state.ts'
import type { NodeBenchmark, NodesStore, OwnNode, StoredNode } from './nodes-store.ts'

/** If this many new ids are taken, the source of randomness must be faulty. */
export const NODE_ID_TRIES = 8

/**
 * An account's nodes. The methods return the JSON value of the interface's answer (2.7). Every
 * method for one node throws ApiError `not_found` when the node does not exist or belongs to
 * another account.
 */
export type OwnedNodes = {
  /** Throws ApiError `limit_reached` when the account has too many nodes. */
  create(node: { readonly accountId: string; readonly name: string }): Promise<object>
  /** Changes the members that are not null. Archiving ends the node's connection. */
  update(
    node: OwnNode & { readonly name: string | null; readonly isArchived: boolean | null },
  ): Promise<object>
  /** Returns the account's nodes, oldest first, including archived nodes. */
  list(accountId: string): Promise<object>
  info(node: OwnNode): Promise<object>
  saveInfo(node: OwnNode & { readonly hardware: NodeHardware }): Promise<object>
  stats(node: OwnNode): Promise<object>
  /** Includes the current hour. */
  history(node: OwnNode & { readonly hours: number }): Promise<object>
  /** Throws `not_found` also when there is no benchmark of this model. */
  benchmark(node: OwnNode & { readonly model: string }): Promise<object>
  /**
   * Throws `not_found` also for a node that has not reported its hardware. Throws `limit_reached`
   * for too many models.
   */
  saveBenchmark(
    benchmark: OwnNode & Pick<NodeBenchmark, 'model' | 'tokensPerSecond'>,
  ): Promise<object>
}

/**
 * `now` is Unix milliseconds. `random` returns the requested number of unpredictable bytes.
 * `onArchived` gets a node that must not stay connected.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: a node owner's operations
export function createOwnedNodes(options: {
  readonly nodes: NodesStore
  readonly inferences: Pick<InferencesStore, 'stats' | 'servedDay' | 'history'>
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

  async function create({
    accountId,
    name,
  }: {
    readonly accountId: string
    readonly name: string
  }) {
    for (let tries = 0; tries < NODE_ID_TRIES; tries++) {
      const nodeId = makeNodeId(random)
      const outcome = await nodes.create({ nodeId, accountId, name, createdAt: unixSeconds() })
      if (outcome === 'too_many')
        throw new ApiError('limit_reached', 'This account has too many nodes')
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
      const items = listed.map(({ benchmark, speeds, ...node }) => {
        const described = describe(node, now)
        return {
          ...described,
          total_uptime_seconds: node.totalUptimeSeconds + described.run_duration_seconds,
          requests_served: node.requestsServed,
          requests_served_day: servedDay.get(node.nodeId) ?? 0,
          benchmark_tokens_per_second: benchmark?.tokensPerSecond ?? null,
          is_archived: node.isArchived,
          node_created_at: node.createdAt,
          is_connected: node.connectedSince !== null,
          models: node.models.map((model) => ({
            model_name: model,
            tokens_per_second: speeds.get(model) ?? null,
          })),
        }
      })
      return { response: 'OK', nodes: items } satisfies z.output<typeof nodeListReply>
    },
    async info(own) {
      const node = await findOwn(own)
      return {
        ...describe(node, unixSeconds()),
        node_created_at: node.createdAt,
      } satisfies z.output<typeof nodeInfoReply>
    },
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
      return statsReply(node, benchmark, stats)
    },
    async history({ hours, ...own }) {
      const { nodeId } = await findOwn(own)
      const now = unixSeconds()
      const since = now - (now % HOUR_SECONDS) - (hours - 1) * HOUR_SECONDS
      const found = await inferences.history(nodeId, since)
      return { node_id: nodeId, since, hours: found.map(describeHour) } satisfies z.output<
        typeof nodeHistoryReply
      >
    },
    async benchmark({ model, ...own }) {
      const { nodeId } = await findOwn(own)
      const benchmark = await nodes.findBenchmark(nodeId, model)
      if (benchmark === null)
        throw new ApiError('not_found', 'This node has no benchmark of this model')
      return {
        node_id: nodeId,
        model_name: benchmark.model,
        tokens_per_second: benchmark.tokensPerSecond,
      } satisfies z.output<typeof nodeBenchmarkReply>
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

/** The hardware is null until the agent reports it. `now` is Unix seconds. */
function describe(node: StoredNode, now: number) {
  return {
    node_id: node.nodeId,
    ...pickHardware(node.hardware ?? {}),
    name_alias: node.name,
    status: statusText(node.state),
    run_duration_seconds: runDurationSeconds(node, now),
  }
}

function statsReply(
  node: StoredNode,
  benchmark: NodeBenchmark | null,
  { averageTimeToFirstTokenMs: averageMs, requestsServedDay, completed }: NodeStats,
): z.output<typeof nodeStatsReply> {
  return {
    requests_served: node.requestsServed,
    requests_served_day: requestsServedDay,
    average_time_to_first_token: averageMs === null ? null : averageMs / 1000,
    benchmark_tokens_per_second: benchmark?.tokensPerSecond ?? null,
    benchmark_model_name: benchmark?.model ?? null,
    benchmark_created_at: benchmark?.createdAt ?? null,
    completed_inferences: completed.map((inference) => ({
      model_name: inference.model,
      prompt_tokens: inference.promptTokens,
      completion_tokens: inference.completionTokens,
      total_tokens: inference.totalTokens,
      created_at: inference.createdAt,
    })),
  }
}

function describeHour(hour: NodeHour) {
  const { firstTokenMs } = hour
  return {
    start: hour.start,
    requests: hour.requests,
    prompt_tokens: hour.promptTokens,
    completion_tokens: hour.completionTokens,
    time_to_first_token:
      firstTokenMs === null ? null : { p50: firstTokenMs.p50 / 1000, p95: firstTokenMs.p95 / 1000 },
  }
}

/** At least 0, because `connectedSince` may come from another gateway's clock. */
function runDurationSeconds({ connectedSince }: StoredNode, now: number): number {
  return connectedSince === null ? 0 : Math.max(0, now - connectedSince)
}

/** Number of words in a node id: 5 × 11 bits. */
const NODE_ID_WORDS = 5

/**
 * Joins five words from BIP-39's English list by `_`. The id is not a secret. Among a million
 * nodes, the chance of two equal ids is 1 in 72,000, so the caller must try again if the id is
 * taken.
 */
export function makeNodeId(random: (length: number) => Uint8Array): string {
  const bytes = random(2 * NODE_ID_WORDS)
  const draws = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  return Array.from({ length: NODE_ID_WORDS }, (_, index) =>
    english().getWord(draws.getUint16(2 * index) % WORDS),
  ).join('_')
}

/** A power of two, so that the remainder of 16 random bits is evenly distributed. */
const WORDS = 2048

function english() {
  const { en } = wordlists
  if (en === undefined) throw new TypeError('expected the English word list in ethers')
  return en
}
