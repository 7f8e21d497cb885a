import type { Duplex } from 'node:stream'
import type { WebSocket } from 'ws'
import { currentTraceparent } from '../../observability/call-scope.ts'
import type { Logger } from '../../observability/logger.ts'
import {
  encodeGatewayControl,
  type NodeLoad,
  parseNodeControl,
} from '../protocol/control-frames.ts'
import { NODE_DIALECTS } from '../protocol/dialects.ts'
import {
  type ChatRunFrame,
  decodeImageFrame,
  decodeNodeFrame,
  type ImageRunFrame,
  imageFrame,
  type NodeFrame,
} from '../protocol/frames.ts'
import { CLOSE_CODES, type NodeHello } from '../protocol/hello.ts'
import type { NodeState } from '../registry/node-state.ts'
import { type ChatQuestion, ChatRun, type ChatRunOptions } from './chat-run.ts'
import { type DispatchError, lostError } from './dispatch-error.ts'
import { answerBytesOf, type FrameMeter, type ImageBudget, meterFrames } from './image-memory.ts'
import { ImageRun, type ImageRunOptions } from './image-run.ts'
import type { NodeLimits } from './limits.ts'
import { awaitPong, createLiveness, type Liveness } from './liveness.ts'
import { type Circuit, createNodeHealth, type NodeHealth } from './node-health.ts'
import {
  capacityOf,
  createSlots,
  type Offer,
  type OfferingNode,
  openOffer,
  type Slots,
} from './offer.ts'
import type { Run, RunEvent } from './run.ts'
import { createEndedRuns, createStrayBudget, type StrayBudget } from './stray-frames.ts'

/**
 * Maximum number of remembered ended runs. A run can end at a usage chunk. Its final frame (status
 * 2) then arrives later.
 */
const ENDED_RUNS_MAX = 64

/** A call may need one of these features, and then only nodes with the feature are chosen. */
const CHOSEN_BY = ['remote-media', ...NODE_DIALECTS] as const

export type AcceptedNode = NodeHello & {
  readonly accountId: string
  /** The node's state at the start of the connection. */
  readonly state: NodeState
  readonly vramMb: number | null
}

export type NodeEvent =
  /** The node's free slots or its availability may have changed. */
  | { readonly kind: 'changed' }
  /** The node may have a slot for a waiting caller. */
  | { readonly kind: 'free' }
  /** The node's state changed, and must be stored. */
  | { readonly kind: 'state' }
  /** The connection has ended. Reported once, before the socket closes. */
  | { readonly kind: 'gone'; readonly why: string }
  | { readonly kind: 'run'; readonly run: Run; readonly event: RunEvent }

export type HubLink = {
  readonly limits: NodeLimits
  /** Milliseconds. */
  readonly now: () => number
  /** From 0 to below 1. */
  readonly random: () => number
  /**
   * Makes unguessable ids. A node must not guess other nodes' request ids, or the nonce of a ping
   * that it did not get.
   */
  readonly makeId: () => string
  readonly log: Logger
  /** For all nodes together. */
  readonly imageBudget: ImageBudget
  /** The node's circuits at the end of its last connection, by model. */
  recall(nodeId: string, models: readonly string[]): ReadonlyMap<string, Circuit>
  report(node: NodeConnection, event: NodeEvent): void
}

/** Options of a run, except the options that the connection itself sets. */
export type Start<Options> = Omit<
  Options,
  'id' | 'limits' | 'now' | 'emit' | 'isCancellable' | 'reservation' | 'question'
>

export class NodeConnection implements OfferingNode<NodeConnection> {
  readonly accepted: AcceptedNode
  readonly connectionId: string
  readonly offers: readonly Offer<NodeConnection>[]
  readonly slots: Slots
  readonly nodes = 1
  readonly isRemote = false
  readonly health: NodeHealth
  /** True if the node accepts request members that the public client cannot handle. */
  readonly takesExtraMembers: boolean
  readonly takesLargeFrames: boolean
  readonly abilities: ReadonlySet<string>
  /** Until this time, the node's backend is at its limit, and other nodes get calls first. */
  restsUntilMs = Number.NEGATIVE_INFINITY
  /** Maximum number of bytes that wait to be sent. */
  private readonly waitingBytesMax: number
  private readonly hub: HubLink
  private readonly socket: WebSocket
  private readonly liveness: Liveness
  private readonly strays: StrayBudget
  private readonly runs = new Map<string, Run>()
  private readonly ended = createEndedRuns(ENDED_RUNS_MAX)
  /** Measures frames with images. Null for a chat node. */
  private readonly meter: FrameMeter | null
  /** Bytes that are reserved for the images of running calls. */
  private reservedBytes = 0
  /** When the waiting frames were last sent entirely, or none was waiting. */
  private takenAtMs: number
  private isDraining = false
  private isGone = false

  /**
   * `stream` is the socket below the WebSocket. A DIFFUSION node may send a large frame only after
   * the gateway has reserved memory for the answer. This limits the memory for all frames to the
   * image budget, and one small frame for each node.
   */
  constructor(socket: WebSocket, stream: Duplex, accepted: AcceptedNode, hub: HubLink) {
    this.socket = socket
    this.accepted = accepted
    this.connectionId = hub.makeId()
    this.takesExtraMembers = accepted.features.has('extra-members')
    this.takesLargeFrames = accepted.features.has('large-frames')
    this.abilities = new Set(CHOSEN_BY.filter((feature) => accepted.features.has(feature)))
    const { sendBytesMax, largeRequestBytesMax, frameBytesMax } = hub.limits
    this.waitingBytesMax = sendBytesMax + (this.takesLargeFrames ? largeRequestBytesMax : 0)
    this.hub = hub
    this.takenAtMs = hub.now()
    this.offers = accepted.models.map((model) => openOffer(this, model))
    this.slots = createSlots(capacityOf(accepted.vramMb, hub.limits), {
      onTaken: () => this.report({ kind: 'changed' }),
      onFreed: () => this.free(),
    })
    this.health = createNodeHealth({
      ...hub,
      state: accepted.state,
      circuits: hub.recall(accepted.nodeId, accepted.models),
      onChange: (isNewState) => {
        if (isNewState) this.report({ kind: 'state' })
        this.free()
      },
    })
    this.strays = createStrayBudget(hub.limits)
    this.liveness = createLiveness({
      ...hub,
      actions: {
        socketPing: () => socket.ping(),
        send: (control) => socket.send(encodeGatewayControl(this.nodeId, control)),
        lose: (why) => this.terminate(why),
      },
    })
    this.meter = this.draws
      ? meterFrames(stream, {
          bytesMax: () => frameBytesMax + this.reservedBytes,
          onExceeded: () =>
            this.expel(CLOSE_CODES.policy, 'Frame is larger than what was asked for'),
        })
      : null
    socket.on('message', (data: Buffer, isBinary: boolean) => this.receiveSafely(data, isBinary))
    socket.on('pong', () => this.takePing(this.liveness.isAwaitingPong()))
    socket.on('ping', () => this.takePing(false))
    socket.on('close', (code) => this.end(`closed with ${code}`))
    // The close event that follows reports the error.
    socket.on('error', () => {})
  }

  get draws(): boolean {
    return this.accepted.modelType === 'DIFFUSION'
  }

  private get isCancellable(): boolean {
    return this.accepted.features.has('cancel')
  }

  get nodeId(): string {
    return this.accepted.nodeId
  }

  isConnected(): boolean {
    return !this.isGone
  }

  hasRoomFor(frameBytes: number): boolean {
    return this.socket.bufferedAmount + frameBytes <= this.waitingBytesMax
  }

  /** True if the node has a free slot and serves `model`. Default: any model. */
  isAvailable(model?: string): boolean {
    return this.isServing(model) && this.slots.inUse() < this.slots.capacity
  }

  /** True if the node gets calls for `model`. Default: any model. */
  isServing(model?: string): boolean {
    const isGoing = this.isGone || this.isDraining || this.liveness.isLeaving()
    return !isGoing && this.health.isServing(model)
  }

  /** Not trusted. Logged when the node's state changes. */
  load(): NodeLoad | null {
    return this.liveness.load()
  }

  /** Starts a run, which itself releases the slot. */
  chat(question: ChatQuestion, start: Start<ChatRunOptions>): ChatRun {
    // The run may outlive its caller by far, so it does not hold the request.
    const { request: _, frameOf, frameBytes: _size, ...asked } = question
    const run = new ChatRun({ ...start, ...this.ownOptions(), question: asked })
    this.open(run, frameOf(run.id, this.traceparent()))
    return run
  }

  /** Returns null and releases the slot if there is no memory for another answer. */
  draw(start: Start<ImageRunOptions>): ImageRun | null {
    const { imageBudget, limits } = this.hub
    const reservation = imageBudget.reserve(answerBytesOf(start.request, limits.imageFrameBytesMax))
    if (reservation === null) {
      start.slot.release()
      return null
    }
    this.reservedBytes += reservation.bytes
    const run = new ImageRun({ ...start, ...this.ownOptions(), reservation })
    this.open(run, imageFrame(run.id, start.request))
    return run
  }

  cancel(run: Run): void {
    if (this.isGone || !this.isCancellable) return
    this.socket.send(encodeGatewayControl(this.nodeId, { kind: 'cancel', requestId: run.id }))
  }

  forget(run: Run): void {
    this.runs.delete(run.id)
    if (!run.hasFinalFrame) this.ended.add(run.id)
    if (!(run instanceof ImageRun)) return
    this.reservedBytes -= run.options.reservation.bytes
    this.meter?.check()
  }

  /** Sends a frame. Ends the connection of a node that is closing. */
  private post(frame: string): void {
    if (this.isClosing()) this.end('closing')
    if (!this.isGone) this.socket.send(frame, (fault) => fault ?? this.taken())
  }

  /** A frame was sent, so a waiting caller's frame may have room. */
  private taken(): void {
    this.takenAtMs = this.hub.now()
    if (this.isAvailable()) this.report({ kind: 'free' })
  }

  private ownOptions() {
    const { limits, now, makeId } = this.hub
    const emit = (run: Run, event: RunEvent) => this.report({ kind: 'run', run, event })
    return { id: makeId(), limits, now, emit, isCancellable: this.isCancellable }
  }

  private open(run: Run, frame: string): void {
    this.runs.set(run.id, run)
    this.report({ kind: 'run', run, event: { kind: 'opened' } })
    this.post(frame)
    if (this.isGone) run.fail(lostError())
  }

  private report(event: NodeEvent): void {
    this.hub.report(this, event)
  }

  private traceparent(): string | null {
    return this.accepted.features.has('trace') ? currentTraceparent() : null
  }

  /**
   * Sends the pings that are due, and ends the connection of a node that is silent or does not
   * read.
   */
  tend(): void {
    if (this.isClosing()) this.end('closing')
    this.tendFrames()
    if (this.isGone) return
    // The public client, which cannot cancel, answers no ping while it draws. The run's own limits
    // end a call to a lost node.
    if (this.draws && !this.isCancellable && this.runs.size > 0) this.liveness.excuse()
    const wasLeaving = this.liveness.isLeaving()
    this.liveness.tend(this.runs.size === 0)
    if (wasLeaving !== this.liveness.isLeaving()) this.free()
  }

  /** A node with a slow line may be silent while frames wait: its pings wait behind them. */
  private tendFrames(): void {
    const { now, limits } = this.hub
    if (this.isGone) return
    const { bufferedAmount } = this.socket
    // Node.js hands all waiting frames to the system together, so no part of them is seen to go.
    const stallMs = limits.sendStallMs + bufferedAmount / limits.sendBytesPerMsMin
    if (bufferedAmount === 0) this.takenAtMs = now()
    else if (now() - this.takenAtMs < stallMs) this.liveness.received()
    else this.terminate('frames are not read')
  }

  /** False when the node's socket does not answer a ping in time. */
  async isAlive(timeoutMs: number): Promise<boolean> {
    return !this.isGone && !this.isClosing() && (await awaitPong(this.socket, timeoutMs))
  }

  /** The close frame contains the reason. */
  close(code: number, reason: string): void {
    if (this.isGone) return
    this.end(reason)
    this.socket.close(code, reason)
  }

  /** Sends no close frame, because the node no longer reads. */
  terminate(why: string): void {
    this.end(why)
    this.socket.terminate()
  }

  failRuns(error: DispatchError): void {
    for (const run of [...this.runs.values()]) run.fail(error)
  }

  /** True from the node's close frame until the socket is closed. No more frames arrive. */
  private isClosing(): boolean {
    return !this.isGone && this.socket.readyState !== this.socket.OPEN
  }

  /** Models of the runs whose callers still wait for this node. */
  private answeredModels(): ReadonlySet<string> {
    const waited = [...this.runs.values()].filter((run) => run.isWaitedFor())
    return new Set(waited.map(({ options }) => options.offer.model))
  }

  private free(): void {
    this.report({ kind: 'changed' })
    if (this.isAvailable()) this.report({ kind: 'free' })
  }

  private end(why: string): void {
    if (this.isGone) return
    this.isGone = true
    this.report({ kind: 'changed' })
    // All running calls of one model together count as one failure.
    for (const model of this.answeredModels()) this.health.failed(model)
    this.failRuns(lostError())
    this.report({ kind: 'gone', why })
  }

  /** An error in our own code ends only the node's connection, not the process. */
  private receiveSafely(data: Buffer, isBinary: boolean): void {
    try {
      this.receive(data, isBinary)
    } catch (error) {
      this.hub.log.error({ err: error, nodeId: this.nodeId }, 'frame of a node not read')
      this.close(CLOSE_CODES.fault, 'Internal error')
    }
  }

  private receive(data: Buffer, isBinary: boolean): void {
    if (this.isGone) return
    this.liveness.received()
    if (isBinary) this.expel(CLOSE_CODES.notText, 'Expected text frames')
    else this.take(this.decode(data), data.length)
  }

  private decode(data: Buffer): NodeFrame {
    if (this.meter === null) return decodeNodeFrame(data)
    this.meter.frameEnded()
    return decodeImageFrame(data, this.hub.limits.frameBytesMax)
  }

  private take(frame: NodeFrame, bytes: number): void {
    switch (frame.kind) {
      case 'run':
      case 'image':
        this.takeAnswer(frame, bytes)
        break
      case 'control':
        this.takeControl(frame, bytes)
        break
      case 'stray':
        this.tolerate(bytes)
        break
      case 'malformed':
        this.expel(CLOSE_CODES.protocol, frame.reason)
        break
    }
  }

  private takeAnswer(frame: ChatRunFrame | ImageRunFrame, bytes: number): void {
    const run = this.runs.get(frame.requestId)
    if (frame.kind === 'run' && run instanceof ChatRun) {
      if (!run.receive(frame, bytes))
        this.expel(CLOSE_CODES.policy, 'Frames of a run that was ended go on')
      return
    }
    if (frame.kind === 'image' && run instanceof ImageRun) {
      run.receive(frame)
      return
    }
    const isLastFrame =
      (frame.kind === 'image' || frame.status !== 'running') && this.ended.take(frame.requestId)
    if (!isLastFrame) this.tolerate(bytes)
  }

  private takeControl(
    { protocol, data }: Extract<NodeFrame, { readonly kind: 'control' }>,
    bytes: number,
  ): void {
    const answer = parseNodeControl(protocol, data, this.nodeId)
    if (answer.kind === 'malformed') {
      this.expel(CLOSE_CODES.protocol, answer.reason)
      return
    }
    const isExpected =
      (answer.kind === 'pong' && this.liveness.ponged(answer.nonce)) ||
      (answer.kind === 'health' && this.liveness.reported(answer.nonce, answer.load))
    if (!isExpected) this.tolerate(bytes)
    if (answer.kind === 'drain' && this.accepted.features.has('drain')) {
      this.isDraining = true
      this.report({ kind: 'changed' })
    }
  }

  /** Counts unexpected pings, because a node can send many thousands of them per second. */
  private takePing(isExpected: boolean): void {
    if (this.isGone) return
    this.liveness.received()
    if (!isExpected) this.tolerate(0)
  }

  private tolerate(bytes: number): void {
    if (this.isGone || this.strays.spend(bytes, this.hub.now())) return
    this.expel(CLOSE_CODES.policy, 'Too many unexpected frames')
  }

  /** Closes the connection, and stops reading, because the node might never answer the close. */
  private expel(code: number, reason: string): void {
    this.close(code, reason)
    this.socket.pause()
  }
}
