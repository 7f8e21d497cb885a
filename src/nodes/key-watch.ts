import type { Logger } from '../observability/logger.ts'
import type { Authenticate } from './authenticate-node.ts'
import { CLOSE_CODES } from './close-codes.ts'
import type { NodeConnection } from './node-connection.ts'

/** A connected node, with the key it dialled with. */
export type KeyedNode = { readonly node: NodeConnection; readonly key: string }

/** Ends the connections of nodes whose key was revoked or expired while they are connected. */
export type KeyWatch = {
  /** Looks at every key once, unless the last looking still goes on. */
  step(): void
  /** Checks under way. */
  running(): number
}

/** Keys that are checked at once. With many more keys than that in use, a round takes longer than its interval. */
export const KEYS_CHECKED_MAX = 32

/**
 * Watches the keys of connected nodes: each key is checked once for all its nodes. A key that cannot be checked, because
 * the database is away, was in order when it was and stays so.
 */
export function createKeyWatch(options: {
  readonly nodes: ReadonlyMap<string, KeyedNode>
  readonly authenticate: Authenticate
  readonly log: Logger
}): KeyWatch {
  const { nodes, authenticate, log } = options
  let running = 0
  let isAway = false

  async function check(key: string, keyed: readonly KeyedNode[]): Promise<void> {
    try {
      const caller = await authenticate(key)
      isAway = false
      for (const { node } of keyed)
        if (caller?.accountId !== node.accepted.accountId || !caller.scopes.includes('nodes'))
          node.close(CLOSE_CODES.policy, 'API key is no longer valid')
    } catch (error) {
      // Once an outage, and not once a round.
      if (!isAway) log.warn({ err: error }, 'keys of nodes not checked')
      isAway = true
    }
  }

  async function checkInTurn(groups: Iterator<readonly [string, readonly KeyedNode[]]>): Promise<void> {
    for (let next = groups.next(); !next.done; next = groups.next()) await check(...next.value)
  }

  return {
    step() {
      if (running > 0 || nodes.size === 0) return
      const groups = Map.groupBy(nodes.values(), ({ key }) => key)
      const entries = groups.entries()
      running = Math.min(groups.size, KEYS_CHECKED_MAX)
      for (let walker = running; walker > 0; walker--)
        void checkInTurn(entries).finally(() => {
          running--
        })
    },
    running: () => running,
  }
}
