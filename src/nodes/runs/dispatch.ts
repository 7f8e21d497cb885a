import { FormatError } from '../../../attestation/errors.ts'
import type { JsonObject } from '../../../attestation/json/value.ts'
import { type ImageRequest, imageFrameBytes } from '../protocol/frames.ts'
import { withKnownMembers } from '../protocol/known-members.ts'
import { remoteMediaFault, remoteMediaOf } from '../protocol/remote-media.ts'
import {
  type AnswerReader,
  askChat,
  type ChatQuestion,
  type ChatRun,
  type ChatRunOptions,
} from './chat-run.ts'
import type { NodeIndex } from './choose-node.ts'
import type { ChunkBatch } from './chunk-queue.ts'
import type { Start } from './connection.ts'
import { DispatchError } from './dispatch-error.ts'
import type { ImageRun, ImageRunOptions } from './image-run.ts'
import type { NodeLimits } from './limits.ts'
import type { HeldOffer, OfferingNode } from './offer.ts'
import type { WaitQueue } from './wait-queue.ts'

/** One chat call. The best node gets it. */
export type NodeCall = {
  readonly model: string
  /** The chat completion request for the node. The node always streams, and includes the usage. */
  readonly request: JsonObject
  /** The caller's account, for the record of served calls; null when there is no account. */
  readonly accountId: string | null
  /** Aborted when the caller leaves: in the queue, before the first token, or during the stream. */
  readonly signal: AbortSignal
  /**
   * Opens the reader of one node's answer. Each node that is tried gets a new reader. Without it,
   * chunks are given as the node sent them.
   */
  readonly openReader?: () => AnswerReader
  /**
   * The call comes from another gateway. It goes only to nodes of this gateway, and does not wait.
   */
  readonly isPeers?: true
}

/** The answer that a node streams for one call. */
export type NodeAnswer = {
  readonly nodeId: string
  /**
   * Chunks in order. Each step gives the chunks that arrived together, after the call's reader has
   * read them. A node's chunk is an object of bounded depth with `choices`, an array of objects
   * that have an integer `index` and an object `delta`. If the node sent a usage-only chunk, this
   * chunk is included. Its `usage` is the node's claim, cut to what the answer can contain
   * (README); it is null when the claim had no valid counts. The iteration ends when the run is
   * done. It throws DispatchError when the node stops before its end, or the signal's reason.
   * Iterate only once. A caller that leaves the iteration, or aborts the signal, cancels the call.
   */
  readonly batches: AsyncIterable<ChunkBatch>
}

/** Gives calls to nodes. */
export type Dispatcher = {
  /**
   * Gives the call to the node with the shortest expected time, and resolves at its first token.
   * Until then, a node that fails or is silent is replaced, at most `retriesMax` times. After the
   * first token, no node is replaced. Rejects with DispatchError, or with the signal's reason.
   */
  dispatch(call: NodeCall): Promise<NodeAnswer>
  /** Models that can be served now, each with its number of RUNNING nodes, sorted by name. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
}

/** One call for images. The best node gets it. */
export type ImageNodeCall<Images> = {
  readonly model: string
  readonly request: ImageRequest
  /** The caller's account, for the record of served calls. */
  readonly accountId: string | null
  /** Aborted when the caller leaves, in any phase. */
  readonly signal: AbortSignal
  /**
   * Checks one node's answer, and gives the result. If it throws FormatError, the answer does not
   * contain the requested images: the node counts as failed, and another node is asked. Any other
   * error ends the call.
   */
  readonly read: (images: readonly string[]) => Promise<Images>
  /**
   * The call comes from another gateway. It goes only to nodes of this gateway, and does not wait.
   */
  readonly isPeers?: true
}

/** Gives calls for images to DIFFUSION nodes. */
export type ImageDispatcher = {
  /**
   * Gives the call to the node with the shortest expected time. A node that fails, refuses, is
   * silent for `imageMs` or sends a malformed answer is replaced, at most `retriesMax` times.
   * Rejects with DispatchError, the signal's reason, or the error that `read` threw.
   */
  dispatch<Images>(call: ImageNodeCall<Images>): Promise<Images>
  /** Whether a node that is RUNNING has the model now. */
  serves(model: string): boolean
  /** Whether a node of the model is or was connected to this process. */
  isKnown(model: string): boolean
  /** Models that can be served now, each with its number of RUNNING nodes, sorted by name. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
  /** Whether a request fits the frames that nodes take. */
  fits(request: { readonly prompt: string; readonly imageBytes: number }): boolean
}

/** A target of calls: a node that is connected here, or the nodes of another gateway. */
export interface CallableNode extends OfferingNode<CallableNode> {
  readonly nodeId: string
  /** Whether this is another gateway, which gives the call to one of its nodes. */
  readonly isRemote: boolean
  /** Whether it takes members of a request that the public client cannot handle. */
  readonly takesExtraMembers: boolean
  /**
   * Until this time the node's backend is at its limit, as the node reported. Other nodes are asked
   * first.
   */
  restsUntilMs: number
  isConnected(): boolean
  /** Whether the target now takes a frame that is too large for some nodes. */
  hasRoomFor(frameBytes: number): boolean
  /** Begins a chat run; the run owns the slot from now on. */
  chat(
    question: ChatQuestion,
    start: Start<ChatRunOptions>,
  ): Pick<ChatRun, 'firstToken' | 'batches'>
  /**
   * Asks for images. When too many answers are under way, it gives null and releases the slot.
   * `drop` is called when the images are not judged.
   */
  draw(
    start: Start<ImageRunOptions>,
  ): (Pick<ImageRun, 'answer' | 'conclude'> & { readonly drop?: () => void }) | null
}

type Index = NodeIndex<CallableNode>
type Held = HeldOffer<CallableNode>

/** The parts that give calls of one kind, chat or images, to nodes. */
export type DispatchParts = {
  readonly index: Index
  readonly queue: WaitQueue<CallableNode>
  readonly limits: Pick<
    NodeLimits,
    'retriesMax' | 'waitMs' | 'requestBytesMax' | 'largeRequestBytesMax'
  >
  readonly now: () => number
}

/**
 * Dispatcher.dispatch: tries one node after another until a node answers. Each node gets only the
 * members that it takes, and no frame that is too large for it.
 */
export async function dispatchCall(call: NodeCall, parts: DispatchParts): Promise<NodeAnswer> {
  checkCall(call, parts.index)
  const questions = questionsOf(call)
  const hasRemoteMedia = checkMedia(call, parts.index)
  const largeBytes = largeBytesOf(questions.whole, call.model, parts)
  return tryNodes({ ...call, largeBytes, hasRemoteMedia }, parts, (held) =>
    attemptChat(call, questions.for(held.offer.node), held),
  )
}

type Questions = {
  readonly whole: ChatQuestion
  readonly for: (node: CallableNode) => ChatQuestion
}

/**
 * Gives two forms of the question: with all members, and with only the members that every node
 * takes. Each form's text is made once, the second only when it is needed.
 */
function questionsOf({ model, request }: NodeCall): Questions {
  const whole = askChat(model, request)
  const known = withKnownMembers(request)
  let knownQuestion = known === request ? whole : null
  return {
    whole,
    for(node) {
      if (node.takesExtraMembers) return whole
      knownQuestion ??= askChat(model, known)
      return knownQuestion
    },
  }
}

/**
 * Whether the request contains an address in place of an image. Such a request goes only to nodes
 * whose owners allow this, because a backend fetches the address from its own network. Throws
 * DispatchError when no node of the model allows this.
 */
function checkMedia({ model, request }: NodeCall, index: Index): boolean {
  const media = remoteMediaOf(request)
  if (media === null) return false
  const isTaken = index.connected(model) === 0 || index.connectedMedia(model) > 0
  if (isTaken && media.isWeb) return true
  throw new DispatchError('remote_media', remoteMediaFault(media))
}

/**
 * Size of a frame that is too large for some nodes; null when every node takes it. Throws
 * DispatchError when no node of the model takes it.
 */
function largeBytesOf(
  { frameBytes }: ChatQuestion,
  model: string,
  { index, limits: { requestBytesMax, largeRequestBytesMax } }: DispatchParts,
): number | null {
  if (frameBytes <= requestBytesMax) return null
  const isTaken = index.connected(model) === 0 || index.connectedLarge(model) > 0
  const bytesMax = isTaken ? largeRequestBytesMax : requestBytesMax
  if (frameBytes > bytesMax)
    throw new DispatchError('request_too_large', `Nodes take requests of at most ${bytesMax} bytes`)
  return frameBytes
}

/**
 * One attempt. Gives the answer when its first token has arrived, or the node's error. Throws the
 * signal's reason.
 */
async function attemptChat(
  { signal, accountId, openReader }: NodeCall,
  question: ChatQuestion,
  { offer, slot }: Held,
): Promise<NodeAnswer | DispatchError> {
  const { node } = offer
  const reader = openReader?.() ?? null
  const run = node.chat(question, { offer, slot, signal, accountId, reader, isProbe: false })
  try {
    await run.firstToken
  } catch (error) {
    if (error instanceof DispatchError && !signal.aborted) return error
    throw signal.aborted ? signal.reason : error
  }
  return { nodeId: node.nodeId, batches: run.batches }
}

/**
 * ImageDispatcher.dispatch: tries one node after another, as dispatchCall does for chat. All nodes
 * take image frames of the same size.
 */
export async function dispatchImages<Images>(
  call: ImageNodeCall<Images>,
  parts: DispatchParts,
): Promise<Images> {
  checkCall(call, parts.index)
  const { requestBytesMax } = parts.limits
  const imageBytes = ((call.request.image?.length ?? 0) * 3) / 4
  if (imageFrameBytes({ ...call.request, imageBytes }) > requestBytesMax)
    throw new DispatchError(
      'request_too_large',
      `Nodes take requests of at most ${requestBytesMax} bytes`,
    )
  return tryNodes(call, parts, (held) => attemptImages(call, held))
}

/** One attempt. Gives the result of `read`, or the node's error. */
async function attemptImages<Images>(
  { request, signal, accountId, read, isPeers }: ImageNodeCall<Images>,
  { offer, slot }: Held,
): Promise<Images | DispatchError> {
  const run = offer.node.draw({ offer, slot, request, signal, accountId, isProbe: false })
  if (run === null) throw new DispatchError('no_nodes', 'Too many images are being made')
  try {
    const images = await read(await run.answer)
    run.conclude(null)
    return images
  } catch (error) {
    if (signal.aborted) throw signal.reason
    if (error instanceof DispatchError) return error
    if (!(error instanceof FormatError)) {
      run.drop?.()
      throw error
    }
    const fault = new DispatchError(
      'node_failed',
      `The node's answer is not images: ${error.message}`,
    )
    run.conclude(fault)
    // The gateway that sent the call has judged the images, and asks another node itself.
    if (isPeers) throw fault
    return fault
  }
}

/** Conditions that a node must meet for the call. */
type Wanted = {
  readonly model: string
  readonly signal: AbortSignal
  /** Size of a frame that is too large for some nodes; null or absent when every node takes it. */
  readonly largeBytes?: number | null
  /** Whether the request contains an address in place of an image. */
  readonly hasRemoteMedia?: boolean
  readonly isPeers?: true
}

/**
 * Throws the signal's reason, or DispatchError `unsupported_model` when no node ever offered the
 * model.
 */
function checkCall({ model, signal }: Wanted, index: Pick<Index, 'isKnown'>): void {
  signal.throwIfAborted()
  if (!index.isKnown(model))
    throw new DispatchError('unsupported_model', 'No node serves this model')
}

/**
 * Gives a checked call to one node after another until a node answers. `attempt` resolves with the
 * answer, or with the error of its node, and gives the slot back. An error that it throws ends the
 * call. A node that fails is replaced, at most `retriesMax` times. If a node says that the request
 * is wrong, another free node must confirm this. The caller gets the refusal only when the second
 * node refuses too, or when no second node is free. If the second node answers, the first node is
 * not blamed: its backend may lack what this request needs.
 */
async function tryNodes<Answer>(
  wanted: Wanted,
  parts: DispatchParts,
  attempt: (held: Held) => Promise<Answer | DispatchError>,
): Promise<Answer> {
  const tried = new Set<CallableNode>()
  let failure: DispatchError | null = null
  let refusal: DispatchError | null = null
  let deadlineMs = parts.now() + parts.limits.waitMs
  while (tried.size <= parts.limits.retriesMax) {
    const held = await holdOffer(wanted, tried, {
      ...parts,
      failure,
      deadlineMs,
      isConfirming: refusal !== null,
    })
    if (held === null) break
    tried.add(held.offer.node)
    // The caller may have left between the end of the wait and this point.
    if (wanted.signal.aborted) {
      held.slot.release()
      throw wanted.signal.reason
    }
    const outcome = await attempt(held)
    if (!(outcome instanceof DispatchError)) return outcome
    // Another caller took the slot at the other gateway first. No node was tried there.
    if (outcome.code === 'no_nodes' && held.offer.node.isRemote && parts.now() < deadlineMs) {
      tried.delete(held.offer.node)
      continue
    }
    deadlineMs = parts.now() + parts.limits.waitMs
    if (outcome.code === 'node_busy')
      held.offer.node.restsUntilMs = parts.now() + restSeconds(outcome.retryAfterSeconds) * 1000
    if (outcome.code === 'node_refused') {
      if (refusal !== null) throw outcome
      refusal = outcome
    }
    // After several failures, the caller gets a `node_busy` failure if there was one, because it
    // says when to try again.
    if (failure?.code !== 'node_busy') failure = outcome
  }
  throw refusal ?? failure ?? new DispatchError('no_nodes', 'No node of this model is connected')
}

/** Pause of a node whose backend is at its limit and gives no time. */
const REST_SECONDS = 1
/**
 * Longest pause of such a node, even if the node asks for more. During the pause, other nodes are
 * asked first.
 */
const REST_SECONDS_MAX = 60

function restSeconds(asked: number | null): number {
  return Math.min(asked ?? REST_SECONDS, REST_SECONDS_MAX)
}

/**
 * A free offer, now or within the wait; null when no further node can be tried. Rejects when no
 * node was tried at all.
 */
async function holdOffer(
  { model, signal, largeBytes = null, hasRemoteMedia = false, isPeers }: Wanted,
  tried: ReadonlySet<CallableNode>,
  {
    index,
    queue,
    now,
    failure,
    deadlineMs,
    isConfirming,
  }: DispatchParts & {
    readonly failure: DispatchError | null
    readonly deadlineMs: number
    readonly isConfirming: boolean
  },
): Promise<Held | null> {
  const isExcluded = (node: CallableNode) =>
    tried.has(node) ||
    (largeBytes !== null && !node.hasRoomFor(largeBytes)) ||
    (hasRemoteMedia && !node.takesRemoteMedia) ||
    (isPeers === true && node.isRemote)
  const isResting = (node: CallableNode) => now() < node.restsUntilMs
  const offer =
    index.pick(model, (node) => isExcluded(node) || isResting(node)) ??
    index.pick(model, isExcluded)
  const slot = offer?.node.slots.acquire() ?? null
  if (offer !== null && slot !== null) return { offer, slot }
  const triedHere = [...tried].filter((node) => node.isConnected()).length
  const connected = Math.min(
    largeBytes === null ? index.connected(model) : index.connectedLarge(model),
    hasRemoteMedia ? index.connectedMedia(model) : Number.POSITIVE_INFINITY,
  )
  if (isConfirming || isPeers === true) return null
  const isReturning = tried.size === 0 && index.isReturning(model)
  if (connected <= triedHere && !isReturning) return null
  try {
    return await queue.enter({ model, isExcluded, signal, deadlineMs })
  } catch (error) {
    // The first node's failure is more useful to the caller than the lack of a second node.
    if (failure !== null && error instanceof DispatchError && error.code === 'no_nodes') return null
    throw error
  }
}
