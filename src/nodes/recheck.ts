import type { Logger } from '../observability/logger.ts'
import { CLOSE_CODES } from './close-codes.ts'
import { REFUSALS } from './handshake.ts'
import type { KeyedNode } from './key-watch.ts'
import type { NodeRegistry } from './ports.ts'

/** Looks at connected nodes' registrations again, because nodes are archived and disabled while they are connected. */
export type Recheck = {
  /** Looks at the next few; called every `everyMs`, it comes round to all within `periodMs`. */
  step(): void
  running(): number
}

/** Rechecks under way at once. */
const RECHECKS_MAX = 32

export function createRecheck(options: {
  /** Live: nodes come and go while it is walked. */
  readonly nodes: ReadonlyMap<string, KeyedNode>
  readonly everyMs: number
  readonly periodMs: number
  readonly registry: NodeRegistry
  readonly log: Logger
}): Recheck {
  const { nodes, everyMs, periodMs, registry, log } = options
  let walk = nodes.values()
  let due = 0
  let running = 0

  async function check({ node }: KeyedNode): Promise<void> {
    const registered = await registry.find(node.nodeId)
    if (registered === null) node.close(CLOSE_CODES.policy, REFUSALS.nodeUnknown)
    else if (registered.isArchived) node.close(CLOSE_CODES.policy, REFUSALS.nodeArchived)
    else if (registered.state === 'RUNNING_DISABLED' || registered.state === 'STOPPED_DISABLED')
      node.close(CLOSE_CODES.policy, REFUSALS.nodeDisabled)
  }

  function next(): KeyedNode | null {
    const { value, done } = walk.next()
    if (!done) return value
    walk = nodes.values()
    return null
  }

  return {
    step() {
      due = Math.min(due + (nodes.size * everyMs) / periodMs, nodes.size)
      while (due >= 1 && running < RECHECKS_MAX) {
        due--
        const keyed = next()
        if (keyed === null) continue
        running++
        void check(keyed)
          // The database is away: the node was in order when it was, and comes round again.
          .catch((error: unknown) =>
            log.warn({ err: error, nodeId: keyed.node.nodeId }, 'node not rechecked'),
          )
          .finally(() => {
            running--
          })
      }
    },
    running: () => running,
  }
}
