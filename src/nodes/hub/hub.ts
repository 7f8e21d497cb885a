import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { JsonObject } from '#attestation/json/value.ts'
import type { Bus } from '../../bus/bus.ts'
import type { Logger } from '../../observability/logger.ts'
import { imageFrameBytes } from '../protocol/frames.ts'
import { CLOSE_CODES } from '../protocol/hello.ts'
import { createInferenceLog, type InferencesSink } from '../registry/inference-log.ts'
import { createNodeRecords } from '../registry/node-records.ts'
import type { NodeState } from '../registry/node-state.ts'
import type { AnswerReader } from '../runs/chat-run.ts'
import { createNodeIndex, type NodeIndex } from '../runs/choose-node.ts'
import { type HubLink, NodeConnection, type NodeEvent } from '../runs/connection.ts'
import {
  type CallableNode,
  type Dispatcher,
  type DispatchParts,
  dispatchCall,
  dispatchImages,
  type ImageDispatcher,
} from '../runs/dispatch.ts'
import { DispatchError, isNodesFault, mayBeRequestsFault } from '../runs/dispatch-error.ts'
import { createImageBudget } from '../runs/image-memory.ts'
import type { NodeLimits } from '../runs/limits.ts'
import { createCircuitMemory } from '../runs/node-health.ts'
import { startSweep } from '../runs/node-timer.ts'
import type { Run, RunEvent, RunResult } from '../runs/run.ts'
import { createWaitQueue, type WaitQueue } from '../runs/wait-queue.ts'
import type { NodeQuestion, PlaceName } from '../sharing/messages.ts'
import { servePeers } from '../sharing/serve-peers.ts'
import { NodeSharing } from '../sharing/share-nodes.ts'
import { type Authenticate, type ConnectionRegistry, createNodeAdmission } from './admit-node.ts'
import { createNodeSocket } from './node-socket.ts'
import { createProber, type ProbeOptions } from './probe.ts'
import { createKeyWatch, createRecheck, type KeyedNode } from './recheck-nodes.ts'
import { createStoredConnections } from './stored-connections.ts'

/** All counts are 0 after stop(). */
type HubStatus = {
  readonly connected: number
  /** Connected nodes that get calls. */
  readonly serving: number
  readonly slotsInUse: number
  /** Runs that have not ended, including runs whose remaining frames are discarded. */
  readonly runs: number
  readonly queued: number
  readonly probes: number
  /** Reserved for answers with images. */
  readonly imageBytes: number
  readonly handshakes: number
  /** Open WebSockets, including those that are closing. */
  readonly sockets: number
  readonly timers: number
  /** Running writes to the registry, and served runs that are not yet stored. */
  readonly writes: number
}

/** The nodes of this process. */
export type Hub = {
  /** Handles `upgrade` at `/v1/node/ws`. From then on, the hub owns the socket. */
  handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void
  readonly dispatcher: Dispatcher
  readonly images: ImageDispatcher
  /**
   * Ends the connection of a node that was archived or disabled, with code 1008. False when the
   * node is not connected.
   */
  disconnect(nodeId: string, reason: string): boolean
  status(): HubStatus
  countStates(): ReadonlyMap<NodeState, number>
  /**
   * Accepts no more nodes, and stops offering this process's nodes to other gateways. Resolves when
   * other gateways' calls have ended, or after `graceMs`.
   */
  drain(graceMs: number): Promise<void>
  /**
   * Accepts no more nodes and calls. Runs may continue for `graceMs`. Then ends the runs, closes
   * all nodes with 1012, and stores the remaining data. Resolves when all sockets, timers and
   * writes have ended. The database must be available until then.
   */
  stop(graceMs?: number): Promise<void>
}

export type HubOptions = Pick<ProbeOptions, 'checkImage'> & {
  readonly nodes: ConnectionRegistry
  /** Id of this process in the list of living processes. The id changes if the lease is lost. */
  readonly processId: () => string
  /**
   * Models that nodes have offered before. A call for such a model is not the caller's error, even
   * without a connected node. Default: empty.
   */
  readonly offeredModels?: readonly string[]
  readonly inferences: InferencesSink
  readonly authenticate: Authenticate
  readonly limits: NodeLimits
  /** Unix milliseconds. May have a fraction. */
  readonly now: () => number
  /**
   * Returns numbers from 0 to below 1, to choose nodes and to spread pings. No secret depends on
   * them.
   */
  readonly random: () => number
  /** Null: the service has no other gateways. */
  readonly bus?: Bus | null
  /** Returns a reader that checks the node's answer to another gateway's chat request. */
  readonly judge?: (request: JsonObject) => AnswerReader
  /** Makes an unguessable UUID for request ids and nonces. */
  readonly makeId: () => string
  readonly log: Logger
}

/**
 * Starts the hub and its only timer. Chat and images have separate indexes and queues: the same
 * name can mean a chat model and an image model.
 */
// biome-ignore lint/complexity/noExcessiveLinesPerFunction: parts, put together in one place
export function createHub(options: HubOptions): Hub {
  const { nodes: registry, limits, now, log } = options
  const state = createState(options)
  const { chat, images, connections, prober } = state
  const chatParts: DispatchParts = { ...chat, limits, now }
  const imageParts: DispatchParts = { ...images, limits, now }
  const link: HubLink = {
    ...options,
    imageBudget: state.imageBudget,
    recall: state.memory.recall,
    report: (node, event) => reduce(state, node, event),
  }
  const admit = createNodeAdmission({
    ...options,
    registry,
    records: state.records,
    connected: (nodeId) => connections.get(nodeId)?.node ?? null,
    claimElsewhere: async (nodeId) =>
      (await state.sharing?.claim(nodeId, limits.takeoverMs)) ?? true,
    unclaim: (nodeId) => state.sharing?.unclaim(nodeId),
  })
  const socket = createNodeSocket({
    admit,
    limits,
    log,
    countNodes: () => connections.size,
    onNode: (webSocket, accepted, key, stream) =>
      enter(state, new NodeConnection(webSocket, stream, accepted, link), key),
  })
  const recheck = createRecheck({
    nodes: connections,
    registry,
    log,
    everyMs: limits.tendMs,
    periodMs: limits.recheckMs,
  })
  const keyWatch = createKeyWatch({ ...options, nodes: connections })
  const jobs = [
    { everyMs: limits.tickMs, run: () => checkDeadlines(state) },
    { everyMs: limits.tendMs, run: () => tend(state) },
    { everyMs: limits.tendMs, run: recheck.step },
    { everyMs: limits.keyCheckMs, run: keyWatch.step },
    { everyMs: limits.seenMs, run: state.stored.markSeen },
    { everyMs: limits.abandonedMs, run: state.stored.endAbandoned },
  ]
  const sweep = startSweep({ tickMs: limits.tickMs, jobs, log })
  let stopping: Promise<void> | null = null
  const takeCalls = () => {
    if (stopping !== null) throw stoppingError()
  }
  const dispatcher: Dispatcher = {
    async dispatch(call) {
      takeCalls()
      return dispatchCall(call, chatParts)
    },
    models: chat.index.models,
  }
  const imageDispatcher: ImageDispatcher = {
    async dispatch(call) {
      takeCalls()
      return dispatchImages(call, imageParts)
    },
    serves: images.index.isServed,
    isKnown: images.index.isKnown,
    models: images.index.models,
    fits: (request) => imageFrameBytes(request) <= limits.requestBytesMax,
  }
  const { bus, judge } = options
  const peers =
    bus && judge !== undefined
      ? servePeers(bus, { dispatcher, images: imageDispatcher, judge })
      : null

  async function drain(graceMs: number): Promise<void> {
    socket.stop()
    state.sharing?.drain()
    await until(() => (peers?.running() ?? 0) === 0, graceMs)
  }

  async function stop(graceMs: number): Promise<void> {
    prober.stop()
    await drain(graceMs)
    await until(() => slotsInUse(state) === 0, graceMs)
    chat.queue.rejectAll(stoppingError())
    images.queue.rejectAll(stoppingError())
    for (const node of [...nodesOf(state)]) {
      node.failRuns(stoppingError())
      node.close(CLOSE_CODES.restart, 'Gateway is restarting')
    }
    state.sharing?.stop()
    await until(() => socket.sockets() === 0 && socket.handshakes() === 0, FAREWELL_MS)
    await socket.destroy()
    sweep.stop()
    await until(() => recheck.running() + keyWatch.running() === 0, FAREWELL_MS)
    await state.records.allSettled()
    await state.inferenceLog.flush()
  }

  return {
    handleUpgrade: socket.handleUpgrade,
    dispatcher,
    images: imageDispatcher,
    disconnect(nodeId, reason) {
      if (disconnectHere(state, nodeId, reason)) return true
      void state.sharing?.disconnectElsewhere(nodeId, reason)
      return false
    },
    status: () => ({
      connected: connections.size,
      serving: [...nodesOf(state)].filter((node) => node.isServing()).length,
      slotsInUse: slotsInUse(state),
      runs: state.runs.size,
      queued: chat.queue.size() + images.queue.size(),
      probes: prober.running(),
      imageBytes: state.imageBudget.inUse(),
      handshakes: socket.handshakes(),
      sockets: socket.sockets(),
      timers: sweep.timers(),
      writes:
        state.records.pending() +
        state.inferenceLog.waiting() +
        recheck.running() +
        keyWatch.running(),
    }),
    countStates: () => countStates(state),
    drain,
    stop(graceMs = 0) {
      stopping ??= stop(graceMs)
      return stopping
    },
  }
}

/** How long a node may take to finish the closing handshake. */
const FAREWELL_MS = 1_000
const STOP_STEP_MS = 10

function stoppingError(): DispatchError {
  return new DispatchError('stopping', 'This instance is shutting down')
}

async function until(isDone: () => boolean, timeoutMs: number): Promise<void> {
  for (let waitedMs = 0; !isDone() && waitedMs < timeoutMs; waitedMs += STOP_STEP_MS)
    await sleep(STOP_STEP_MS)
}

/** Serves calls of one kind: chat or images. */
type Place = {
  readonly index: NodeIndex<CallableNode>
  readonly queue: WaitQueue<CallableNode>
}

type State = ReturnType<typeof createState>

function createState(options: HubOptions) {
  const { nodes: registry, inferences, offeredModels = [], limits, now, random, log } = options
  const { processId, bus = null } = options
  const place = (known: readonly string[]): Place => ({
    index: createNodeIndex({ random, offeredModels: known, returnMs: limits.waitMs, now }),
    queue: createWaitQueue(limits),
  })
  const connections = new Map<string, KeyedNode>()
  const records = createNodeRecords(log)
  const chat = place(offeredModels)
  // The registry does not store whether a model is for chat or images. So a model for images is
  // known only after a node has offered it to this process.
  const images = place([])
  return {
    registry,
    now,
    log,
    connections,
    chat,
    images,
    records,
    stored: createStoredConnections({ registry, records, connections, processId, now, log }),
    runs: new Set<Run>(),
    /** Null when there are no other gateways. */
    sharing:
      bus === null
        ? null
        : new NodeSharing({
            bus,
            places: { chat, images },
            placeOf: placeNameOf,
            onAsked: (nodeId, question) => answerPeer(connections, nodeId, question),
          }),
    imageBudget: createImageBudget(limits.imageBytesMax),
    inferenceLog: createInferenceLog({
      sink: inferences,
      log,
      inferencesMax: limits.inferencesMax,
    }),
    prober: createProber(options),
    memory: createCircuitMemory(),
  }
}

function placeOf(node: NodeConnection, state: State): Place {
  return state[placeNameOf(node)]
}

function placeNameOf({ draws }: NodeConnection): PlaceName {
  return draws ? 'images' : 'chat'
}

/** False when the node is not connected here. */
async function answerPeer(
  connections: ReadonlyMap<string, KeyedNode>,
  nodeId: string,
  question: NodeQuestion,
): Promise<boolean> {
  if (question.kind === 'disconnect')
    return disconnectHere({ connections }, nodeId, question.reason)
  const old = connections.get(nodeId)?.node
  if (old === undefined) return false
  const isAlive = await old.isAlive(question.timeoutMs)
  if (!isAlive) old.terminate('its node dialled another gateway')
  return isAlive
}

function disconnectHere(
  { connections }: { readonly connections: ReadonlyMap<string, KeyedNode> },
  nodeId: string,
  reason: string,
): boolean {
  const keyed = connections.get(nodeId)
  keyed?.node.close(CLOSE_CODES.policy, reason)
  return keyed !== undefined
}

function* nodesOf({ connections }: State): Iterable<NodeConnection> {
  for (const { node } of connections.values()) yield node
}

function enter(state: State, node: NodeConnection, key: string): void {
  const { connections, prober, log } = state
  const { nodeId, accepted } = node
  connections.set(nodeId, { node, key })
  placeOf(node, state).index.add(node)
  state.sharing?.enter(node)
  log.info({ nodeId, models: accepted.models, state: accepted.state }, 'node connected')
  state.stored.begin(node)
  if (node.isAvailable()) placeOf(node, state).queue.offer(node)
  prober.probeDue([node])
}

function reduce(state: State, node: NodeConnection, event: NodeEvent): void {
  const { nodeId } = node
  const { registry, records, log } = state
  switch (event.kind) {
    case 'changed':
      placeOf(node, state).index.update(node)
      state.sharing?.changed(node)
      break
    case 'free':
      placeOf(node, state).queue.offer(node)
      break
    case 'state': {
      const nodeState = node.health.state()
      log.info({ nodeId, state: nodeState, health: node.load() }, 'node changed its state')
      records.write(nodeId, () => registry.setState(node, nodeState))
      break
    }
    case 'run':
      reduceRun(state, node, event)
      break
    case 'gone': {
      placeOf(node, state).index.remove(node)
      state.sharing?.leave(node)
      state.memory.keep(nodeId, node.health.circuits(), state.now())
      if (state.connections.get(nodeId)?.node === node) state.connections.delete(nodeId)
      log.info({ nodeId, why: event.why }, 'node disconnected')
      state.stored.end(node)
    }
  }
}

function reduceRun(
  { runs, inferenceLog }: State,
  node: NodeConnection,
  { run, event }: { readonly run: Run; readonly event: RunEvent },
): void {
  switch (event.kind) {
    case 'opened':
      runs.add(run)
      break
    case 'settled':
      conclude(node, run, event.result)
      break
    case 'draining':
      node.cancel(run)
      break
    case 'abandoned':
      // The caller left before the first token, and the node still sent no token until its
      // deadline. This counts as a failure of the node.
      if (run.result?.kind === 'left' && !run.hasBegun())
        node.health.failed(run.options.offer.model)
      break
    case 'served':
      if (!run.options.isProbe) inferenceLog.add(run.inferenceOf(node.nodeId))
      break
    case 'closed':
      runs.delete(run)
      node.forget(run)
  }
}

function conclude({ health }: NodeConnection, run: Run, result: RunResult): void {
  run.options.offer.speed = run.speedAfter(result)
  // The prober itself evaluates the runs of its probes.
  if (run.options.isProbe || result.kind === 'left') return
  const { model } = run.options.offer
  if (result.kind === 'done') health.succeeded(model)
  else if (mayBeRequestsFault(result.error)) health.refused(model)
  else if (isNodesFault(result.error)) health.failed(model)
}

function checkDeadlines({ runs, chat, images, now }: State): void {
  const nowMs = now()
  for (const run of runs) run.check(nowMs)
  chat.queue.sweep(nowMs)
  images.queue.sweep(nowMs)
}

function tend(state: State): void {
  for (const node of nodesOf(state)) node.tend()
  state.prober.probeDue(nodesOf(state))
  void state.inferenceLog.flush()
}

function countStates(state: State): ReadonlyMap<NodeState, number> {
  const counts = new Map<NodeState, number>()
  for (const node of nodesOf(state))
    counts.set(node.health.state(), (counts.get(node.health.state()) ?? 0) + 1)
  return counts
}

function slotsInUse(state: State): number {
  let sum = 0
  for (const node of nodesOf(state)) sum += node.slots.inUse()
  return sum
}
