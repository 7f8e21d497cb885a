import type { WebSocket } from 'ws'
import { currentTraceparent } from '../observability/call-scope.ts'
import { awaitPong } from './await-pong.ts'
import { CLOSE_CODES } from './close-codes.ts'
import type { ConnectionHost } from './connection-host.ts'
import { cancelFrame, type NodeHealth, parseControl } from './control-frames.ts'
import type { DispatchError } from './dispatcher.ts'
import { createEndedRuns } from './ended-runs.ts'
import { lostError } from './fault-error.ts'
import { decodeFrame, type NodeFrame } from './frames.ts'
import type { AcceptedNode } from './handshake.ts'
import { createImageDesk, type ImageDesk } from './image-desk.ts'
import type { ImageFrame } from './image-frames.ts'
import { createLiveness, type Liveness, reachNode } from './liveness.ts'
import { type Lane, openLane } from './node-index.ts'
import { NodeRun, type RunHooks } from './node-run.ts'
import type { RunStart } from './run-start.ts'
import { capacityOf, createSlots, type Slots } from './slots.ts'
import { createStanding, type Standing } from './standing.ts'
import { createStrayBudget, type StrayBudget } from './stray-budget.ts'

/** Runs that ended without their final frame, which may still come: clients send a usage chunk, and then status 2. */
const ENDED_RUNS_MAX = 64

/** A node that is connected. */
export class NodeConnection {
  readonly accepted: AcceptedNode
  readonly lanes: readonly Lane[]
  readonly slots: Slots
  readonly standing: Standing
  /** Its image runs; null for a node that chats. */
  readonly desk: ImageDesk | null
  /** Whether it takes members of a request that the public client would stumble over. */
  readonly takesExtraMembers: boolean
  readonly takesLargeFrames: boolean
  /** Until then, by its own word, its backend is at its limit: others are asked first. */
  restsUntilMs = Number.NEGATIVE_INFINITY
  /** What may wait for it to be read. */
  private readonly waitingBytesMax: number
  private readonly host: ConnectionHost
  private readonly socket: WebSocket
  private readonly liveness: Liveness
  private readonly strays: StrayBudget
  private readonly runs = new Map<string, NodeRun>()
  private readonly ended = createEndedRuns(ENDED_RUNS_MAX)
  private readonly hooks: RunHooks
  private isDraining = false
  private isGone = false

  constructor(socket: WebSocket, accepted: AcceptedNode, host: ConnectionHost) {
    this.socket = socket
    this.accepted = accepted
    this.takesExtraMembers = accepted.features.has('extra-members')
    this.takesLargeFrames = accepted.features.has('large-frames')
    const { sendBytesMax, largeRequestBytesMax } = host.limits
    this.waitingBytesMax = sendBytesMax + (this.takesLargeFrames ? largeRequestBytesMax : 0)
    this.host = host
    this.lanes = accepted.models.map((model) => openLane(this, model))
    this.slots = createSlots(capacityOf(accepted.vramMb, host.limits), {
      onTaken: () => host.onChange(this),
      onFreed: () => this.free(),
    })
    this.standing = createStanding({
      ...host,
      state: accepted.state,
      circuit: host.recall(accepted.nodeId),
      onChange: (isNewState) => {
        if (isNewState) host.onState(this)
        this.free()
      },
    })
    this.strays = createStrayBudget(host.limits)
    this.liveness = createLiveness({
      ...host,
      actions: reachNode(socket, this.nodeId, (why) => this.terminate(why)),
    })
    this.hooks = this.runHooks()
    const draws = accepted.modelType === 'DIFFUSION'
    this.desk = draws ? createImageDesk(this, host, (why) => this.expel(CLOSE_CODES.policy, why)) : null
    socket.on('message', (data: Buffer, isBinary: boolean) => this.receiveSafely(data, isBinary))
    socket.on('pong', () => this.hear(this.liveness.isAwaitingPong()))
    socket.on('ping', () => this.hear(false))
    socket.on('close', (code) => this.end(`closed with ${code}`))
    // What went wrong is told by the close that follows.
    socket.on('error', () => {})
  }

  get nodeId(): string {
    return this.accepted.nodeId
  }

  isConnected(): boolean {
    return !this.isGone
  }

  /**
   * Whether it takes a large frame now, and would not count as lost for what waits for it to be
   * read.
   */
  hasRoomFor(frameBytes: number): boolean {
    return this.takesLargeFrames && this.socket.bufferedAmount + frameBytes <= this.waitingBytesMax
  }

  /** Whether it can be given a call now. */
  isAvailable(): boolean {
    return this.isServing() && this.slots.inUse() < this.slots.capacity
  }

  /** Whether it is given calls at all. */
  isServing(): boolean {
    return !this.isGone && !this.isDraining && this.standing.isServing() && !this.liveness.isLeaving()
  }

  /** The node's own last statement of its load: not trusted, but worth reading when it gets slow. */
  health(): NodeHealth | null {
    return this.liveness.health()
  }

  /** Begins a run; the slot is the run's from now on. */
  start({ lane, frameOf, ...run }: RunStart): NodeRun {
    const { limits, now, makeId } = this.host
    const started = new NodeRun({ ...run, id: makeId(), lane, limits, now, hooks: this.hooks })
    this.runs.set(started.id, started)
    this.host.onOpened(started)
    this.post(frameOf(started.id, this.traceparent()))
    if (this.isGone) started.fail(lostError())
    return started
  }

  /** Sends a frame. Ends the connection of a node that is closing, or does not read what it is sent. */
  post(frame: string): void {
    if (this.isClosing()) this.end('closing')
    else if (this.isGone || this.socket.bufferedAmount > this.waitingBytesMax)
      this.close(CLOSE_CODES.policy, 'Frames are not read')
    else this.socket.send(frame)
  }

  private traceparent(): string | null {
    return this.accepted.features.has('trace') ? currentTraceparent() : null
  }

  /** Sends what is due, and gives up on a node that is silent. */
  tend(): void {
    if (this.isClosing()) this.end('closing')
    if (this.isGone) return
    const wasLeaving = this.liveness.isLeaving()
    this.liveness.tend(this.runs.size === 0 && (this.desk?.size() ?? 0) === 0)
    if (wasLeaving !== this.liveness.isLeaving()) this.free()
  }

  /** Resolves with whether the node's socket answers a ping in time. */
  async isAlive(timeoutMs: number): Promise<boolean> {
    return !this.isGone && !this.isClosing() && (await awaitPong(this.socket, timeoutMs))
  }

  /** Ends the connection with a reason for the node. */
  close(code: number, reason: string): void {
    if (this.isGone) return
    this.end(reason)
    this.socket.close(code, reason)
  }

  /** Ends the connection without a word: nobody is there to hear one. */
  terminate(why: string): void {
    this.end(why)
    this.socket.terminate()
  }

  /** Ends its runs at once with `error`. */
  failRuns(error: DispatchError): void {
    for (const run of [...this.runs.values()]) run.fail(error)
    this.desk?.fail(error)
  }

  /** Its close frame came: nothing else will, though its side may leave the connection open for `closeTimeoutMs`. */
  private isClosing(): boolean {
    return !this.isGone && this.socket.readyState !== this.socket.OPEN
  }

  private isAnswering(): boolean {
    const runs = [...this.runs.values()]
    return runs.some(isWaitedFor) || this.desk?.isAnswering() === true
  }

  private free(): void {
    this.host.onChange(this)
    if (this.isAvailable()) this.host.onFree(this)
  }

  private end(why: string): void {
    if (this.isGone) return
    this.isGone = true
    this.host.onChange(this)
    // Once for all its calls: a cut is one event. Without any, coming and going is no fault.
    if (this.isAnswering()) this.standing.failed()
    this.failRuns(lostError())
    this.host.onGone(this, why)
  }

  /** A fault of ours that one node's frame uncovers ends that node's connection, and not the process. */
  private receiveSafely(data: Buffer, isBinary: boolean): void {
    try {
      this.receive(data, isBinary)
    } catch (error) {
      this.host.log.error({ err: error, nodeId: this.nodeId }, 'frame of a node not read')
      this.close(CLOSE_CODES.fault, 'Internal error')
    }
  }

  private receive(data: Buffer, isBinary: boolean): void {
    if (this.isGone) return
    this.liveness.heard()
    const frame: NodeFrame | ImageFrame = isBinary
      ? { kind: 'binary' }
      : (this.desk?.decode(data) ?? decodeFrame(data))
    if (frame.kind === 'run') this.receiveRun(frame, data.length)
    else if (frame.kind === 'control') this.receiveControl(frame, data.length)
    else if (frame.kind === 'image') this.desk?.receive(frame) || this.tolerate(data.length)
    else if (frame.kind === 'stray') this.tolerate(data.length)
    else if (frame.kind === 'binary') this.expel(CLOSE_CODES.notText, 'Expected text frames')
    else this.expel(CLOSE_CODES.protocol, frame.reason)
  }

  private receiveRun(frame: Extract<NodeFrame, { readonly kind: 'run' }>, bytes: number): void {
    const run = this.runs.get(frame.requestId)
    if (run !== undefined) {
      if (!run.receive(frame, bytes)) this.expel(CLOSE_CODES.policy, 'Answer is too large')
      return
    }
    const isLastFrame = frame.status !== 'running' && this.ended.take(frame.requestId)
    if (!isLastFrame) this.tolerate(bytes)
  }

  private receiveControl(frame: Extract<NodeFrame, { readonly kind: 'control' }>, bytes: number): void {
    const answer = parseControl(frame.protocol, frame.data, this.nodeId)
    if (answer.kind === 'malformed') {
      this.expel(CLOSE_CODES.protocol, answer.reason)
      return
    }
    const isExpected =
      (answer.kind === 'pong' && this.liveness.ponged(answer.nonce)) ||
      (answer.kind === 'health' && this.liveness.reported(answer.nonce, answer.health))
    if (!isExpected) this.tolerate(bytes)
    if (answer.kind === 'drain' && this.accepted.features.has('drain')) {
      this.isDraining = true
      this.host.onChange(this)
    }
  }

  /** A WebSocket control frame. A node can send hundreds of thousands a second, so unasked ones cost like any frame. */
  private hear(isExpected: boolean): void {
    if (this.isGone) return
    this.liveness.heard()
    if (!isExpected) this.tolerate(0)
  }

  /** A frame nobody asked for. */
  private tolerate(bytes: number): void {
    if (this.isGone || this.strays.spend(bytes, this.host.now())) return
    this.expel(CLOSE_CODES.policy, 'Too many unexpected frames')
  }

  /** Ends the connection for what the node sent. It would be read until the node agrees to close, so reading ends too. */
  private expel(code: number, reason: string): void {
    this.close(code, reason)
    this.socket.pause()
  }

  private runHooks(): RunHooks {
    const { host } = this
    return {
      onSettled: (run, result) => host.onSettled(this, run, result),
      onDraining: (run) => {
        if (!this.isGone && this.accepted.features.has('cancel'))
          this.socket.send(cancelFrame(this.nodeId, run.id))
      },
      onAbandoned: (run) => {
        // Nothing at all for a caller who waited and left: only now it is known that nothing came later either.
        if (run.result?.kind === 'left' && run.times() === null) this.standing.failed()
      },
      onServed: (run) => host.onServed(this, run),
      onClosed: (run) => {
        this.runs.delete(run.id)
        if (!run.hasFinalFrame) this.ended.add(run.id)
        host.onClosed(run)
      },
    }
  }
}

function isWaitedFor({ result, options }: NodeRun): boolean {
  return result === null && !options.isProbe
}
