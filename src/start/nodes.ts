import { randomBytes, randomUUID } from 'node:crypto'
import type { ApiKeys } from '../accounts/api-keys.ts'
import { checkImages } from '../images/checked-images.ts'
import { createHub, type Hub } from '../nodes/hub.ts'
import { startInferenceUpkeep } from '../nodes/inference-log.ts'
import { createInferencesStore } from '../nodes/inferences-store.ts'
import { NODE_LIMITS } from '../nodes/limits.ts'
import { createNodesStore } from '../nodes/nodes-store.ts'
import type { Logger } from '../observability/logger.ts'
import type { Database } from '../storage/database.ts'
import type { AppRegistry } from './app-routes.ts'

/** Contributed nodes: those that are connected, and all that are registered. */
export type NodesPart = {
  readonly connected: Hub
  readonly registry: AppRegistry
  /** Ends every node's connection and stores what is left. */
  stop(): Promise<void>
}

/** Makes ready to take nodes: what a killed gateway left connected is ended first. */
export async function startNodes({
  database,
  keys,
  log,
}: {
  readonly database: Database
  readonly keys: Pick<ApiKeys, 'authenticate'>
  readonly log: Logger
}): Promise<NodesPart> {
  const nodes = createNodesStore(database)
  const inferences = createInferencesStore(database)
  await nodes.markAllDisconnected()
  const connected = createHub({
    nodes,
    inferences,
    offeredModels: await nodes.offeredModels(),
    authenticate: keys.authenticate,
    limits: NODE_LIMITS,
    now: unixMs,
    random: Math.random,
    makeId: randomUUID,
    checkImage: (images) => checkImages(images, { n: 1, size: null }),
    log,
  })
  const upkeep = startInferenceUpkeep({ inferences, now: Date.now, log })
  return {
    connected,
    registry: { nodes, inferences, random: randomBytes },
    stop: async () => {
      await connected.stop()
      await upkeep.stop()
    },
  }
}

/** Unix milliseconds with a fraction, of a clock that never goes back. */
export function unixMs(): number {
  return TIME_ORIGIN_MS + performance.now()
}

/** Read once: this is asked several times for each chunk. */
const TIME_ORIGIN_MS = performance.timeOrigin
