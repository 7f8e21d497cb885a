import type { Logger } from '../../observability/logger.ts'

export type NodeRecords = {
  /**
   * Runs the write after all earlier writes for this node. A failure is logged, and does not stop
   * later writes.
   */
  write(nodeId: string, write: () => Promise<unknown>): void
  /** Resolves when all earlier writes for this node are done. */
  settled(nodeId: string): Promise<void>
  allSettled(): Promise<void>
  /** Number of nodes with a running write. */
  pending(): number
}

/**
 * Runs the writes for each node one after another. If a node disconnects and connects again at
 * once, the end of the old connection must be stored before the start of the new one. No call waits
 * for these writes.
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
