import { randomBytes, randomUUID } from 'node:crypto'
import type { AppSockets } from '../../api/app.ts'
import type { Route } from '../../api/route.ts'
import type { Opening } from '../../observability/logger.ts'
import { unixMs } from '../../runtime/clock.ts'
import type { Database } from '../../storage/database.ts'
import type { ProcessLease } from '../../storage/process-lease.ts'
import { startInferenceUpkeep } from '../registry/inference-log.ts'
import { createInferencesStore, type InferencesStore } from '../registry/inferences-store.ts'
import { createNetworkStats } from '../registry/network-stats.ts'
import { createNodesStore, type NodesStore } from '../registry/nodes-store.ts'
import { createOwnedNodes } from '../registry/owned-nodes.ts'
import { nodeRoutes } from '../registry/registry-routes.ts'
import type { Dispatcher } from '../runs/dispatch.ts'
import { NODE_LIMITS, type NodeLimits } from '../runs/limits.ts'
import { createHub, type Hub, type HubOptions } from './hub.ts'
import { NODE_SOCKET_PATH } from './node-socket.ts'

export type ServingNodes = Pick<Hub, 'handleUpgrade' | 'disconnect' | 'status' | 'countStates'> & {
  readonly dispatcher: Pick<Dispatcher, 'dispatch' | 'models'>
  /** Absent when no node makes images. */
  readonly images?: Hub['images']
  /** Absent when nodes are not shared with other gateways. */
  readonly drain?: Hub['drain']
  /** Call this after all calls that need nodes have ended. */
  stop(): Promise<void>
}

type NodeParts = Opening &
  Pick<HubOptions, 'bus' | 'judge' | 'authenticate' | 'checkImage'> & {
    readonly database: Database
    readonly lease: Pick<ProcessLease, 'id'>
    readonly limits?: NodeLimits | undefined
    /** Nodes that a test provides. */
    readonly nodes?: ServingNodes | undefined
  }

export async function openNodes({ database, nodes: own, onStarted, ...parts }: NodeParts): Promise<{
  readonly serving: ServingNodes
  readonly sockets: AppSockets
  readonly routes: readonly Route[]
}> {
  const nodes = createNodesStore(database)
  const inferences = createInferencesStore(database)
  const serving = own ?? (await acceptNodes(parts, { nodes, inferences }))
  onStarted(() => serving.stop())
  const onArchived = (nodeId: string) => void serving.disconnect(nodeId, 'Node is archived')
  const registry = { nodes, inferences, onArchived, random: randomBytes, now: unixMs }
  return {
    serving,
    sockets: {
      path: NODE_SOCKET_PATH,
      handleUpgrade: serving.handleUpgrade,
      async stop(graceMs) {
        await serving.drain?.(graceMs)
        await serving.stop()
      },
    },
    routes: nodeRoutes({
      nodes: createOwnedNodes(registry),
      network: createNetworkStats(registry),
    }),
  }
}

async function acceptNodes(
  { lease, limits = NODE_LIMITS, log, ...parts }: Omit<NodeParts, 'database' | 'onStarted'>,
  { nodes, inferences }: { readonly nodes: NodesStore; readonly inferences: InferencesStore },
): Promise<Hub> {
  await nodes.endAbandoned()
  const connected = createHub({
    ...parts,
    nodes,
    inferences,
    processId: () => lease.id(),
    limits,
    log,
    offeredModels: await nodes.offeredModels(),
    now: unixMs,
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
