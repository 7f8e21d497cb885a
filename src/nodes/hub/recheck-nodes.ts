import { ApiError } from '../../api/errors.ts'
import type { Logger } from '../../observability/logger.ts'
import { CLOSE_CODES } from '../protocol/hello.ts'
import type { NodeConnection } from '../runs/connection.ts'
import { type Authenticate, type ConnectionRegistry, REFUSALS } from './admit-node.ts'

/** A connected node, and the key that it sent in its handshake. */
export type KeyedNode = { readonly node: NodeConnection; readonly key: string }

/** Ends the connections of nodes whose key was revoked or has expired. */
type KeyWatch = {
  /** Starts a round that checks every key. Does nothing while the last round is running. */
  step(): void
  running(): number
}

/**
 * Maximum number of simultaneous checks. A round over thousands of keys may take longer than the
 * interval between rounds.
 */
export const KEYS_CHECKED_MAX = 32

/**
 * Watches the keys of connected nodes. A key of several nodes is checked once per round. While the
 * database cannot be reached, each key counts as valid, because it was valid when its node
 * connected.
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
      // The nodes of a disabled account stay connected.
      const isDisabled = error instanceof ApiError && error.code === 'account_disabled'
      // An outage of the database is logged once, not in each round.
      if (!isDisabled && !isAway) log.warn({ err: error }, 'keys of nodes not checked')
      isAway = !isDisabled
    }
  }

  async function checkInTurn(
    groups: Iterator<readonly [string, readonly KeyedNode[]]>,
  ): Promise<void> {
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

/** Reads registrations again, because a connected node can be archived or disabled. */
type Recheck = {
  /** Checks a few nodes. If called every `everyMs`, it checks all nodes within `periodMs`. */
  step(): void
  running(): number
}

const RECHECKS_MAX = 32

export function createRecheck(options: {
  /** The hub's own map. Nodes are added and removed during an iteration. */
  readonly nodes: ReadonlyMap<string, KeyedNode>
  readonly everyMs: number
  readonly periodMs: number
  readonly registry: ConnectionRegistry
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
          // The database cannot be reached. The node was allowed before, and a later round checks
          // it again.
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
