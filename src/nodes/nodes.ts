import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { createAdmission } from './admit-node.ts'
import type { Authenticate } from './authenticate-node.ts'
import { CLOSE_CODES } from './close-codes.ts'
import { dispatchCall } from './dispatch.ts'
import { DispatchError, type Dispatcher } from './dispatcher.ts'
import { createHouse, type House, type HouseOptions } from './house.ts'
import { createImageDispatcher, type ImageDispatcher } from './image-dispatcher.ts'
import { createKeyWatch, type KeyWatch } from './key-watch.ts'
import { NodeConnection } from './node-connection.ts'
import { createNodeSocket, type NodeSocket } from './node-socket.ts'
import type { NodeState } from './node-state.ts'
import { createRecheck, type Recheck } from './recheck.ts'
import { type Sweep, startSweep } from './sweep.ts'

/** Counts of everything that is held for nodes and their calls: all are 0 after stop(). */
export type NodesStatus = {
  readonly connected: number
  /** Of these, how many are given work. */
  readonly serving: number
  readonly slotsInUse: number
  /** Runs that are not over, also those that only drain. */
  readonly runs: number
  /** Callers that wait for a node. */
  readonly queued: number
  readonly probes: number
  /** Bytes set aside for answers with images. */
  readonly imageBytes: number
  readonly handshakes: number
  /** WebSockets, also closing ones. */
  readonly sockets: number
  readonly timers: number
  /** Writes to the registry under way, and served runs that are not stored yet. */
  readonly writes: number
}

/** The nodes of this process. */
export type Nodes = {
  /** For the server's `upgrade` event at `/v1/node/ws`. Owns the socket from then on. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  readonly dispatcher: Dispatcher
  readonly images: ImageDispatcher
  /** Ends a node's connection with 1008, when it is archived or disabled. False when it is not connected. */
  disconnect(nodeId: string, reason: string): boolean
  status(): NodesStatus
  /** How many of the connected nodes are in each state. */
  countStates(): ReadonlyMap<NodeState, number>
  /**
   * Takes no nodes and calls any more, lets runs go on for `graceMs`, then ends them, closes all nodes with 1012 and
   * stores what is left. Resolves when no socket, timer and write is left; the database must be there until then.
   */
  stop(graceMs?: number): Promise<void>
}

/**
 * `nodes`: the registry, after its `markAllDisconnected`; `offeredModels` are its own. `now`: Unix milliseconds, a fraction is welcome. `random`: from 0
 * to below 1, picks nodes and spreads pings, and no secret depends on it. `makeId`: a new unguessable UUID, for request
 * ids and nonces.
 */
export type NodesOptions = HouseOptions & { readonly authenticate: Authenticate }

/** Builds the nodes' side of the gateway. Its one timer runs from now on. */
export function createNodes(options: NodesOptions): Nodes {
  const house = createHouse(options)
  const { index, queue, connections } = house
  const { limits, now, nodes: registry, authenticate, log } = options
  const admit = createAdmission({
    ...{ registry, authenticate, records: house.records, limits },
    connected: (nodeId) => connections.get(nodeId)?.node ?? null,
  })
  const socket = createNodeSocket({
    ...{ admit, limits, log },
    count: () => connections.size,
    onNode: (webSocket, accepted, key, stream) => {
      const node = new NodeConnection(webSocket, accepted, house.host)
      node.desk?.watch(stream)
      house.enter(node, key)
    },
  })
  const recheck = createRecheck({
    ...{ nodes: connections, registry, log },
    everyMs: limits.tendMs,
    periodMs: limits.recheckMs,
  })
  const keyWatch = createKeyWatch({ nodes: connections, authenticate, log })
  const jobs = [
    { everyMs: limits.tickMs, run: house.checkDeadlines },
    { everyMs: limits.tendMs, run: house.tend },
    { everyMs: limits.tendMs, run: recheck.step },
    { everyMs: limits.keyCheckMs, run: keyWatch.step },
    { everyMs: limits.seenMs, run: house.markSeen },
  ]
  const sweep = startSweep({ tickMs: limits.tickMs, jobs, log })
  let stopping: Promise<void> | null = null

  return {
    handleUpgrade: socket.handleUpgrade,
    dispatcher: {
      async dispatch(call) {
        if (stopping !== null) throw stoppingError()
        return dispatchCall(call, { index, queue, limits, now })
      },
      models: index.models,
    },
    images: createImageDispatcher(house, {
      ...{ limits, now },
      stoppingError: () => (stopping === null ? null : stoppingError()),
    }),
    disconnect(nodeId, reason) {
      const keyed = connections.get(nodeId)
      keyed?.node.close(CLOSE_CODES.policy, reason)
      return keyed !== undefined
    },
    status: () => statusOf({ house, socket, recheck, keyWatch, sweep }),
    countStates: () => countStates(house),
    stop(graceMs = 0) {
      stopping ??= stopNodes({ house, socket, recheck, keyWatch, sweep }, graceMs)
      return stopping
    },
  }
}

type Parts = {
  readonly house: House
  readonly socket: NodeSocket
  readonly recheck: Recheck
  readonly keyWatch: KeyWatch
  readonly sweep: Sweep
}

/** How long nodes have to finish the closing handshake. */
const FAREWELL_MS = 1_000
const STOP_STEP_MS = 10

function stoppingError(): DispatchError {
  return new DispatchError('stopping', 'This instance is shutting down')
}

async function stopNodes({ house, socket, recheck, keyWatch, sweep }: Parts, graceMs: number): Promise<void> {
  socket.stop()
  house.prober.stop()
  await until(() => slotsInUse(house) === 0, graceMs)
  house.queue.rejectAll(stoppingError())
  house.images.queue.rejectAll(stoppingError())
  for (const { node } of [...house.connections.values()]) {
    node.failRuns(stoppingError())
    node.close(CLOSE_CODES.restart, 'Gateway is restarting')
  }
  await until(() => socket.sockets() === 0 && socket.handshakes() === 0, FAREWELL_MS)
  await socket.destroy()
  sweep.stop()
  await until(() => recheck.running() + keyWatch.running() === 0, FAREWELL_MS)
  await house.records.allSettled()
  await house.inferenceLog.flush()
}

async function until(isSo: () => boolean, timeoutMs: number): Promise<void> {
  for (let waitedMs = 0; !isSo() && waitedMs < timeoutMs; waitedMs += STOP_STEP_MS) await sleep(STOP_STEP_MS)
}

function countStates({ connections: nodes }: House): ReadonlyMap<NodeState, number> {
  const counts = new Map<NodeState, number>()
  for (const { node } of nodes.values()) {
    const state = node.standing.state()
    counts.set(state, (counts.get(state) ?? 0) + 1)
  }
  return counts
}

function slotsInUse({ connections }: House): number {
  let sum = 0
  for (const { node } of connections.values()) sum += node.slots.inUse()
  return sum
}

function statusOf({ house, socket, recheck, keyWatch, sweep }: Parts): NodesStatus {
  const { connections, runs, queue, images, prober, records, inferenceLog } = house
  return {
    connected: connections.size,
    serving: [...connections.values()].filter(({ node }) => node.isServing()).length,
    slotsInUse: slotsInUse(house),
    runs: runs.size + images.runs.size,
    queued: queue.size() + images.queue.size(),
    probes: prober.running(),
    imageBytes: images.budget.inUse(),
    handshakes: socket.handshakes(),
    sockets: socket.sockets(),
    timers: sweep.timers(),
    writes: records.pending() + inferenceLog.waiting() + recheck.running() + keyWatch.running(),
  }
}
