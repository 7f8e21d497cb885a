import type { Logger } from '../../observability/logger.ts'

/** Writes events of nodes to the database. The writes of one node keep the order of its events. */
export type NodeRecords = {
  /**
   * Runs the write after all earlier writes of this node. A failure is logged, and does not stop
   * later writes.
   */
  write(nodeId: string, write: () => Promise<unknown>): void
  /** Resolves when all earlier writes of this node are done. */
  settled(nodeId: string): Promise<void>
  /** Resolves when all earlier writes are done. */
  allSettled(): Promise<void>
  /** Number of nodes with a write under way. */
  pending(): number
}

/**
 * A node may disconnect and connect again at once. The end of the old connection must be stored
 * before the start of the new one. So the writes of each node run one after another. No call waits
 * for them.
 */
export function createNodeRecords(log: Logger): NodeRecords {
  const last = new Map<string, Promise<void>>()

  return {
    write(nodeId, write) {
      const done = (last.get(nodeId) ?? Promise.resolve())
        .then(write)
        .then(
          () => {},
          (error: unknown) => log.error({ err: error, nodeId }, 'node not stored'),
        )
        .finally(() => {
          if (last.get(nodeId) === done) last.delete(nodeId)
        })
      last.set(nodeId, done)
    },
    settled: async (nodeId) => last.get(nodeId),
    async allSettled() {
      while (last.size > 0) await Promise.all(last.values())
    },
    pending: () => last.size,
  }
}
