import type { Logger } from '../../observability/logger.ts'

/** Writes of what happens to nodes, in the order it happened to each. */
export type NodeRecords = {
  /**
   * Does the write after all earlier ones of this node. A failure is logged, and does not stop
   * later ones.
   */
  write(nodeId: string, write: () => Promise<unknown>): void
  /** Resolves when all writes so far of this node are done. */
  settled(nodeId: string): Promise<void>
  /** Resolves when all writes so far are done. */
  allSettled(): Promise<void>
  /** Nodes with a write under way. */
  pending(): number
}

/**
 * A node that goes and comes back at once must not have its going stored after its coming, so each
 * node's writes wait for one another. Nothing on the way of a call waits for them.
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
