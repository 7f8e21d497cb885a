import { randomBytes, randomUUID } from 'node:crypto'
import type { Logger } from '../../observability/logger.ts'
import type { Database } from '../../storage/database.ts'
import { startInferenceUpkeep } from '../registry/inference-log.ts'
import { createInferencesStore, type InferencesStore } from '../registry/inferences-store.ts'
import { createNodesStore, type NodesStore } from '../registry/nodes-store.ts'
import type { Dispatcher } from '../runs/dispatch.ts'
import { NODE_LIMITS, type NodeLimits } from '../runs/limits.ts'
import { createHub, type Hub, type HubOptions } from './hub.ts'

/** Contributed nodes as the API sees them: they dial in at NODE_SOCKET_PATH and serve calls. */
export type ServingNodes = Pick<Hub, 'handleUpgrade' | 'disconnect' | 'status' | 'countStates'> & {
  readonly dispatcher: Pick<Dispatcher, 'dispatch' | 'models'>
  /** Absent: no node makes images. */
  readonly images?: Hub['images']
  /** Absent: no nodes are shared with other gateways. */
  readonly drain?: Hub['drain']
  /** Ends all nodes' connections, when no call needs them. */
  stop(): Promise<void>
}

/** The registered nodes, and what they served. */
export type NodeRegistry = {
  readonly nodes: NodesStore
  readonly inferences: InferencesStore
  /** Gives that many unpredictable bytes, for node ids. */
  readonly random: (length: number) => Uint8Array
}

/** Opens the registry in the database. */
export function openNodeRegistry(database: Database): NodeRegistry {
  const nodes = createNodesStore(database)
  return { nodes, inferences: createInferencesStore(database), random: randomBytes }
}

/**
 * Prepares to accept nodes: the connections that dead gateways left are ended first. `stop` ends
 * every node's connection and stores what is left.
 */
export async function openNodes({
  registry: { nodes, inferences },
  processId,
  authenticate,
  checkImage,
  limits = NODE_LIMITS,
  bus,
  judge,
  now,
  log,
}: Pick<HubOptions, 'bus' | 'judge'> & {
  readonly registry: NodeRegistry
  readonly processId: HubOptions['processId']
  readonly authenticate: HubOptions['authenticate']
  readonly checkImage: HubOptions['checkImage']
  readonly limits?: NodeLimits | undefined
  /** Unix milliseconds with a fraction, of a clock that never goes back. */
  readonly now: () => number
  readonly log: Logger
}): Promise<Hub> {
  await nodes.endAbandoned()
  const connected = createHub({
    nodes,
    processId,
    inferences,
    authenticate,
    checkImage,
    limits,
    now,
    log,
    bus: bus ?? null,
    ...(judge === undefined ? {} : { judge }),
    offeredModels: await nodes.offeredModels(),
    random: Math.random,
    makeId: randomUUID,
  })
  const upkeep = startInferenceUpkeep({ inferences, now: Date.now, log })
  return {
    ...connected,
    stop: async (graceMs) => {
      await connected.stop(graceMs)
      await upkeep.stop()
    },
  }
}
