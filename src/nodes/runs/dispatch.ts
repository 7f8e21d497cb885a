import { FormatError } from '#attestation/errors.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { NODE_DIALECTS, type NodeDialect, pathOfDialect } from '../protocol/dialects.ts'
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

export type NodeCall = {
  readonly model: string
  /** A chat completion request, which always streams and includes the usage. */
  readonly request: JsonObject
  /** The dialect of `request`, which nodes get unchanged. Absent or null: chat completions. */
  readonly dialect?: NodeDialect | null
  /** For the record of served calls. Null: there is no account. */
  readonly accountId: string | null
  /** Aborted when the caller leaves: in the queue, before the first token, or during the stream. */
  readonly signal: AbortSignal
  /**
   * Opens a reader for each node that is tried. Absent: the caller gets the node's chunks
   * unchanged.
   */
  readonly openReader?: () => AnswerReader
  /**
   * Set if another gateway sent the call. The call then does not wait, and stays at this gateway.
   */
  readonly isPeers?: true
}

export type NodeAnswer = {
  readonly nodeId: string
  /**
   * Each step returns the chunks that arrived together, after the call's reader has read them. A
   * chunk is an object of bounded depth with `choices`, an array of objects that have an integer
   * `index` and an object `delta`. Its `usage` is the node's claim, cut to the tokens that the
   * answer can contain (README), or null when the claim had no valid counts.
   *
   * Throws the signal's reason, or DispatchError when the node stops before the end of its answer.
   * Iterate only once. Leaving the iteration cancels the call.
   */
  readonly batches: AsyncIterable<ChunkBatch>
}

export type Dispatcher = {
  /**
   * Sends the call to the node with the shortest expected time, and resolves at the first token.
   * Before the first token, another node replaces a node that fails or is silent, at most
   * `retriesMax` times. Later, no node is replaced. Rejects with DispatchError, or with the
   * signal's reason.
   */
  dispatch(call: NodeCall): Promise<NodeAnswer>
  /** Models that can be served now, with their numbers of RUNNING nodes, sorted by name. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
}

type ImageNodeCall<Images> = {
  readonly model: string
  readonly request: ImageRequest
  /** For the record of served calls. Null: there is no account. */
  readonly accountId: string | null
  readonly signal: AbortSignal
  /**
   * Checks one node's answer, and returns the result of the call. Throws FormatError when the
   * answer lacks the requested images. Then the node counts as failed, and another node is asked.
   * Any other error ends the call.
   */
  readonly read: (images: readonly string[]) => Promise<Images>
  /**
   * Set if another gateway sent the call. The call then does not wait, and stays at this gateway.
   */
  readonly isPeers?: true
}

export type ImageDispatcher = {
  /**
   * Sends the call to the node with the shortest expected time. Another node replaces a node that
   * fails, refuses, is silent for `imageMs` or sends a malformed answer, at most `retriesMax`
   * times. Rejects with DispatchError, the signal's reason, or the error that `read` threw.
   */
  dispatch<Images>(call: ImageNodeCall<Images>): Promise<Images>
  serves(model: string): boolean
  /** True if a node of the model is or was connected to this process. */
  isKnown(model: string): boolean
  /** Models that can be served now, with their numbers of RUNNING nodes, sorted by name. */
  models(): readonly { readonly model: string; readonly nodes: number }[]
  /** True if the request fits into the frames that nodes accept. */
  fits(request: { readonly prompt: string; readonly imageBytes: number }): boolean
}

/** A node that is connected here, or the nodes of another gateway. */
export interface CallableNode extends OfferingNode<CallableNode> {
  readonly nodeId: string
  readonly isRemote: boolean
  /** True if the node accepts request members that the public client cannot handle. */
  readonly takesExtraMembers: boolean
  /** Until this time, the node's backend is at its limit, and other nodes get calls first. */
  restsUntilMs: number
  isConnected(): boolean
  /** True if a frame of this size can be sent now, because few bytes wait to be sent. */
  hasRoomFor(frameBytes: number): boolean
  /** Starts a run. The run releases the slot. */
  chat(
    question: ChatQuestion,
    start: Start<ChatRunOptions>,
  ): Pick<ChatRun, 'firstToken' | 'batches'>
  /**
   * Starts a run, which releases the slot. Null when too many images are being made. `drop` ends a
   * run whose images were not judged.
   */
  draw(
    start: Start<ImageRunOptions>,
  ): (Pick<ImageRun, 'answer' | 'conclude'> & { readonly drop?: () => void }) | null
}

type Index = NodeIndex<CallableNode>
type Held = HeldOffer<CallableNode>

export type DispatchParts = {
  readonly index: Index
  readonly queue: WaitQueue<CallableNode>
  readonly limits: Pick<
    NodeLimits,
    'retriesMax' | 'waitMs' | 'requestBytesMax' | 'largeRequestBytesMax'
  >
  readonly now: () => number
}

/** Dispatches a chat call. Each node gets only members and frame sizes that it accepts. */
export async function dispatchCall(call: NodeCall, parts: DispatchParts): Promise<NodeAnswer> {
  checkCall(call, parts.index)
  const questions = questionsOf(call)
  const needs = [...checkDialect(call, parts.index), ...checkMedia(call, parts.index)]
  const isLarge = isLargeFrame(questions.whole, call.model, parts)
  const { frameBytes } = questions.whole
  return tryNodes({ ...call, frameBytes, isLarge, needs }, parts, (held) =>
    attemptChat(call, questions.for(held.offer.node), held),
  )
}

const REMOTE_MEDIA = 'remote-media'

type Questions = {
  readonly whole: ChatQuestion
  readonly for: (node: CallableNode) => ChatQuestion
}

/** Serialises the request at most twice: with all members, and with known members only. */
function questionsOf({ model, request, dialect = null }: NodeCall): Questions {
  const whole = askChat(model, request, dialect)
  const known = dialect === null ? withKnownMembers(request) : request
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

/** Returns what the call needs. Throws DispatchError when no node of the model has it. */
function checkDialect({ model, dialect = null }: NodeCall, index: Index): readonly string[] {
  if (dialect === null) return []
  const speaks = (one: string) => index.connectedWith(model, one) > 0
  if (index.connected(model) === 0 || speaks(dialect)) return [dialect]
  const paths = ['/v1/chat/completions', ...NODE_DIALECTS.filter(speaks).map(pathOfDialect)]
  throw new DispatchError(
    'unsupported_dialect',
    `No node of this model serves ${pathOfDialect(dialect)}: use ${paths.join(' or ')}`,
  )
}

/**
 * A backend fetches an address from its own network, so a request with an address needs nodes whose
 * owners allow this. Throws DispatchError when no node of the model allows this.
 */
function checkMedia({ model, request }: NodeCall, index: Index): readonly string[] {
  const media = remoteMediaOf(request)
  if (media === null) return []
  const isTaken = index.connected(model) === 0 || index.connectedWith(model, REMOTE_MEDIA) > 0
  if (isTaken && media.isWeb) return [REMOTE_MEDIA]
  throw new DispatchError('remote_media', remoteMediaFault(media))
}

/**
 * Returns false when every node accepts the frame. Throws DispatchError when no node of the model
 * does.
 */
function isLargeFrame(
  { frameBytes }: ChatQuestion,
  model: string,
  { index, limits: { requestBytesMax, largeRequestBytesMax } }: DispatchParts,
): boolean {
  if (frameBytes <= requestBytesMax) return false
  const isTaken = index.connected(model) === 0 || index.connectedLarge(model) > 0
  const bytesMax = isTaken ? largeRequestBytesMax : requestBytesMax
  if (frameBytes > bytesMax)
    throw new DispatchError('request_too_large', `Nodes take requests of at most ${bytesMax} bytes`)
  return true
}

/** Returns the answer at its first token, or the node's error. Throws the signal's reason. */
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

/** Tries one node after another. All nodes have the same size limit for frames with images. */
export async function dispatchImages<Images>(
  call: ImageNodeCall<Images>,
  parts: DispatchParts,
): Promise<Images> {
  checkCall(call, parts.index)
  const { requestBytesMax } = parts.limits
  const imageBytes = ((call.request.image?.length ?? 0) * 3) / 4
  const frameBytes = imageFrameBytes({ ...call.request, imageBytes })
  if (frameBytes > requestBytesMax)
    throw new DispatchError(
      'request_too_large',
      `Nodes take requests of at most ${requestBytesMax} bytes`,
    )
  return tryNodes({ ...call, frameBytes }, parts, (held) => attemptImages(call, held))
}

/** Returns the result of `read`, or the node's error. */
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
    // The other gateway judged the images. It asks another node itself.
    if (isPeers) throw fault
    return fault
  }
}

type Wanted = {
  readonly model: string
  readonly signal: AbortSignal
  readonly frameBytes: number
  /** True if the frame is too large for some nodes. Absent: every node accepts it. */
  readonly isLarge?: boolean
  readonly needs?: readonly string[]
  readonly isPeers?: true
}

function checkCall({ model, signal }: Pick<Wanted, 'model' | 'signal'>, index: Index): void {
  signal.throwIfAborted()
  if (!index.isKnown(model))
    throw new DispatchError('unsupported_model', 'No node serves this model')
}

/**
 * Sends a call to one node after another until a node answers, with at most `retriesMax`
 * replacements. `attempt` releases the slot, and returns a node's error. If `attempt` throws, the
 * call ends.
 *
 * If a node says that the request is wrong, another free node must confirm this. If the second node
 * answers, the first does not count as failed, because its backend may lack a feature that this
 * request needs.
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
    // Calls that got their slots in the same moment may have filled the connection.
    if (!held.offer.node.hasRoomFor(wanted.frameBytes)) {
      held.slot.release()
      continue
    }
    tried.add(held.offer.node)
    // The caller may have left during the wait.
    if (wanted.signal.aborted) {
      held.slot.release()
      throw wanted.signal.reason
    }
    const outcome = await attempt(held)
    if (!(outcome instanceof DispatchError)) return outcome
    // Another caller took the slot at the other gateway, so no node was tried there.
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
    // Of several failures, `node_busy` is the most useful: it says when to try again.
    if (failure?.code !== 'node_busy') failure = outcome
  }
  throw refusal ?? failure ?? new DispatchError('no_nodes', 'No node of this model is connected')
}

/** Seconds without calls after `node_busy`, if the node does not say when to try again. */
const REST_SECONDS = 1
const REST_SECONDS_MAX = 60

function restSeconds(asked: number | null): number {
  return Math.min(asked ?? REST_SECONDS, REST_SECONDS_MAX)
}

/** Null when there is no other node to try. Rejects when the wait ends before any node failed. */
async function holdOffer(
  { model, signal, frameBytes, isLarge = false, needs = [], isPeers }: Wanted,
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
    (isLarge && !node.takesLargeFrames) ||
    !node.hasRoomFor(frameBytes) ||
    needs.some((ability) => !node.abilities.has(ability)) ||
    (isPeers === true && node.isRemote)
  const isResting = (node: CallableNode) => now() < node.restsUntilMs
  const offer =
    index.pick(model, (node) => isExcluded(node) || isResting(node)) ??
    index.pick(model, isExcluded)
  const slot = offer?.node.slots.acquire() ?? null
  if (offer !== null && slot !== null) return { offer, slot }
  const triedHere = [...tried].filter((node) => node.isConnected()).length
  const connected = Math.min(
    isLarge ? index.connectedLarge(model) : index.connected(model),
    ...needs.map((ability) => index.connectedWith(model, ability)),
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
