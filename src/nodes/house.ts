import type { Logger } from '../observability/logger.ts'
import { type CircuitMemory, createCircuitMemory } from './circuit-memory.ts'
import type { ConnectionHost } from './connection-host.ts'
import { createImageHouse, type ImageHouse } from './image-house.ts'
import { createInferenceLog, type InferenceLog } from './inference-log.ts'
import type { KeyedNode } from './key-watch.ts'
import type { NodeLimits } from './limits.ts'
import type { NodeConnection } from './node-connection.ts'
import { createNodeIndex, type NodeIndex } from './node-index.ts'
import { createNodeRecords, type NodeRecords } from './node-records.ts'
import type { NodeRun } from './node-run.ts'
import { type NodeState, stopState } from './node-state.ts'
import type { InferencesSink, NodeRegistry } from './ports.ts'
import { createProber, type Prober } from './probe.ts'
import { concludeRun, inferenceOf } from './run-results.ts'
import { createWaitQueue, type WaitQueue } from './wait-queue.ts'

export type HouseOptions = {
  readonly nodes: NodeRegistry
  /** Models that nodes have offered before: while they are away, a call for one is no error of its caller's. Default none. */
  readonly offeredModels?: readonly string[]
  readonly inferences: InferencesSink
  readonly limits: NodeLimits
  readonly now: () => number
  readonly random: () => number
  readonly makeId: () => string
  readonly log: Logger
}

/** Everything that connected nodes share. */
export type House = {
  readonly connections: ReadonlyMap<string, KeyedNode>
  readonly runs: ReadonlySet<NodeRun>
  readonly index: NodeIndex
  readonly queue: WaitQueue
  /** The same of DIFFUSION nodes. */
  readonly images: ImageHouse
  readonly records: NodeRecords
  readonly inferenceLog: InferenceLog
  readonly prober: Prober
  readonly host: ConnectionHost
  /** A node has connected. */
  enter(node: NodeConnection, key: string): void
  /** Acts on deadlines of runs and waiting callers. */
  checkDeadlines(): void
  /** Sends the pings and probes that are due, and stores what was served. */
  tend(): void
  /** Stores that the connected nodes are still there. */
  markSeen(): void
}

/** Nodes whose presence is stored at once. */
const SEEN_BATCH_MAX = 1_000

/** An empty house. */
export function createHouse(options: HouseOptions): House {
  const { nodes: registry, limits, now, log } = options
  const connections = new Map<string, KeyedNode>()
  const runs = new Set<NodeRun>()
  const parts = {
    ...{ connections, runs },
    index: createNodeIndex({ random: options.random, offeredModels: options.offeredModels ?? [] }),
    queue: createWaitQueue(limits),
    images: createImageHouse(limits, options.random),
    records: createNodeRecords(log),
    inferenceLog: createInferenceLog({ sink: options.inferences, log, inferencesMax: limits.inferencesMax }),
    prober: createProber(limits),
    memory: createCircuitMemory(),
  }
  const { images, records, inferenceLog, prober } = parts
  const unixSeconds = () => Math.floor(now() / 1000)

  return {
    ...parts,
    host: createHost(options, parts),
    enter(node, key) {
      const { nodeId, accepted } = node
      connections.set(nodeId, { node, key })
      placeOf(node, parts).index.add(node)
      log.info({ nodeId, models: accepted.models, state: accepted.state }, 'node connected')
      const at = unixSeconds()
      records.write(nodeId, () => registry.markConnected(nodeId, at, accepted.models))
      records.write(nodeId, () => storeState(registry, nodeId, accepted.state))
      if (node.isAvailable()) placeOf(node, parts).queue.offer(node)
      prober.probeDue([node])
    },
    checkDeadlines() {
      const nowMs = now()
      for (const run of runs) run.check(nowMs)
      parts.queue.sweep(nowMs)
      images.checkDeadlines(nowMs)
    },
    tend() {
      for (const { node } of connections.values()) node.tend()
      prober.probeDue(nodesOf(connections))
      void inferenceLog.flush()
    },
    markSeen() {
      const nodeIds = [...connections.keys()]
      for (let from = 0; from < nodeIds.length; from += SEEN_BATCH_MAX) {
        const batch = nodeIds.slice(from, from + SEEN_BATCH_MAX)
        records.write(ALL_NODES, () => registry.markSeen(batch, unixSeconds()))
      }
    },
  }
}

/** Stands for a node id where a write is about many; no node's id is empty. */
const ALL_NODES = ''

type SharedParts = Pick<House, 'index' | 'queue' | 'images' | 'records' | 'inferenceLog'> & {
  readonly connections: Map<string, KeyedNode>
  readonly memory: CircuitMemory
  readonly runs: Set<NodeRun>
}

/** What happens to the house when something happens to a connection. */
function createHost(options: HouseOptions, parts: SharedParts): ConnectionHost {
  const { nodes: registry, now, log } = options
  const { connections, runs, images, records, inferenceLog, memory } = parts
  return {
    ...options,
    images,
    recall: memory.recall,
    onChange: (node) => placeOf(node, parts).index.update(node),
    onFree: (node) => placeOf(node, parts).queue.offer(node),
    onState(node) {
      const { nodeId } = node
      const state = node.standing.state()
      log.info({ nodeId, state, health: node.health() }, 'node changed its state')
      records.write(nodeId, () => storeState(registry, nodeId, state))
    },
    onOpened: (run) => runs.add(run),
    onSettled: (node, run, result) => concludeRun(node, run, { result, nowMs: now() }),
    onServed(node, run) {
      if (!run.options.isProbe) inferenceLog.note(inferenceOf(node, run, now()))
    },
    onClosed: (run) => runs.delete(run),
    onGone(node, why) {
      const { nodeId } = node
      placeOf(node, parts).index.remove(node)
      memory.keep(nodeId, node.standing.circuit(), now())
      if (connections.get(nodeId)?.node === node) connections.delete(nodeId)
      log.info({ nodeId, why }, 'node disconnected')
      const at = Math.floor(now() / 1000)
      const state = stopState(node.standing.state())
      records.write(nodeId, () => registry.markDisconnected(nodeId, at))
      records.write(nodeId, () => storeState(registry, nodeId, state))
    },
  }
}

/** Where a node's calls come from. */
function placeOf(
  { accepted }: NodeConnection,
  { index, queue, images }: Pick<House, 'index' | 'queue' | 'images'>,
): Pick<House, 'index' | 'queue'> {
  return accepted.modelType === 'DIFFUSION' ? images : { index, queue }
}

function* nodesOf(connections: ReadonlyMap<string, KeyedNode>): Iterable<NodeConnection> {
  for (const { node } of connections.values()) yield node
}

/** Only the operator ends a disablement: whatever happens to the node's connection, the stored state stays disabled. */
async function storeState(registry: NodeRegistry, nodeId: string, state: NodeState): Promise<void> {
  const stored = (await registry.find(nodeId))?.state
  const isDisabled = stored === 'RUNNING_DISABLED' || stored === 'STOPPED_DISABLED'
  const isStopped = stopState(state) === state
  const kept = isStopped ? 'STOPPED_DISABLED' : 'RUNNING_DISABLED'
  await registry.setState(nodeId, isDisabled ? kept : state)
}
