import type { Logger } from '../../observability/logger.ts'
import type { NodeRecords } from '../registry/node-records.ts'
import { stopState } from '../registry/node-state.ts'
import type { NodeConnection } from '../runs/connection.ts'
import type { ConnectionRegistry } from './admit-node.ts'
import type { KeyedNode } from './recheck-nodes.ts'

/** Stores in the database which nodes are connected to this process. */
type StoredConnections = {
  begin(node: NodeConnection): void
  end(node: NodeConnection): void
  /** Stores that the connected nodes are still connected. */
  markSeen(): void
  /**
   * Ends the stored connections of dead processes. If this process has a new id, its old id counts
   * as dead. In this case, stores the connections of this process again, under the new id.
   */
  endAbandoned(): void
}

const SEEN_BATCH_MAX = 1_000
/** Takes the place of the node id in a write about many nodes. No node has an empty id. */
const ALL_NODES = ''

/** `processId` changes when the process loses its lease. `now` is Unix milliseconds. */
export function createStoredConnections({
  registry,
  records,
  connections,
  processId,
  now,
  log,
}: {
  readonly registry: ConnectionRegistry
  readonly records: NodeRecords
  readonly connections: ReadonlyMap<string, KeyedNode>
  readonly processId: () => string
  readonly now: () => number
  readonly log: Logger
}): StoredConnections {
  let storedUnder = processId()
  let isEnding = false
  const unixSeconds = () => Math.floor(now() / 1000)

  function storeBegun(node: NodeConnection, takes: 'always' | 'when_free'): void {
    const { nodeId, connectionId, accepted, health } = node
    const begun = {
      nodeId,
      connectionId,
      processId: processId(),
      at: unixSeconds(),
      models: accepted.models,
      state: health.state(),
    }
    records.write(nodeId, () => registry.markConnected(begun, takes))
  }

  /**
   * Stores a missing connection again, unless the node has another connection. A connection is
   * missing if other processes treated this process as dead, or if another connection replaced it
   * and then ended.
   */
  async function storeSeen(nodes: readonly NodeConnection[]): Promise<void> {
    const stored = await registry.markSeen(nodes, { processId: processId(), at: unixSeconds() })
    for (const node of nodes) {
      const isOpen = connections.get(node.nodeId)?.node === node
      if (isOpen && !stored.has(node.nodeId)) storeBegun(node, 'when_free')
    }
  }

  function markSeen(): void {
    const nodes = [...connections.values()].map(({ node }) => node)
    for (let from = 0; from < nodes.length; from += SEEN_BATCH_MAX) {
      const batch = nodes.slice(from, from + SEEN_BATCH_MAX)
      records.write(ALL_NODES, () => storeSeen(batch))
    }
  }

  async function endOfOthers(): Promise<void> {
    try {
      const count = await registry.endAbandoned()
      if (count > 0) log.info({ count }, 'nodes of a gateway that is gone are disconnected')
    } catch {
      // The renewal of the lease already reports a lost database. The next round tries again.
    } finally {
      isEnding = false
    }
  }

  return {
    begin: (node) => storeBegun(node, 'always'),
    end(node) {
      const ended = { at: unixSeconds(), state: stopState(node.health.state()) }
      records.write(node.nodeId, () => registry.markDisconnected(node, ended))
    },
    markSeen,
    endAbandoned() {
      if (!isEnding) {
        isEnding = true
        records.write(ALL_NODES, endOfOthers)
      }
      if (storedUnder === processId()) return
      storedUnder = processId()
      markSeen()
    },
  }
}
