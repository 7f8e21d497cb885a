import { type ChatFrame, chatFrame } from './chat-frame.ts'
import { DispatchError, type NodeAnswer, type NodeCall } from './dispatcher.ts'
import type { NodeLimits } from './limits.ts'
import type { NodeConnection } from './node-connection.ts'
import type { NodeIndex } from './node-index.ts'
import { promptTokensMax } from './usage-claim.ts'
import type { HeldLane, WaitQueue } from './wait-queue.ts'

export type DispatchParts = {
  readonly index: NodeIndex
  readonly queue: WaitQueue
  readonly limits: NodeLimits
  readonly now: () => number
}

/** A node that blamed the request, until another one confirms or refutes it. */
type Refusal = { readonly error: DispatchError; readonly node: NodeConnection }

/**
 * Dispatcher.dispatch. A node that fails before its first token is replaced, `retriesMax` times. One that blames the
 * request is not believed alone while another is free: only when that one blames it too, or none is there, the caller is
 * told so; when the other one answers, the first has failed.
 */
export async function dispatchCall(call: NodeCall, parts: DispatchParts): Promise<NodeAnswer> {
  const { index, limits } = parts
  call.signal.throwIfAborted()
  if (!index.isKnown(call.model)) throw new DispatchError('unsupported_model', 'No node serves this model')
  const frame = chatFrame(call.model, call.request)
  if (frame.frameBytes > limits.requestBytesMax)
    throw new DispatchError(
      'request_too_large',
      `Nodes take requests of at most ${limits.requestBytesMax} bytes`,
    )
  const tried = new Set<NodeConnection>()
  let failure: DispatchError | null = null
  let refusal: Refusal | null = null
  while (tried.size <= limits.retriesMax) {
    const held = await holdLane(call, tried, { ...parts, failure, isConfirming: refusal !== null })
    if (held === null) break
    tried.add(held.lane.node)
    const outcome = await attempt(call, frame, held)
    if (!(outcome instanceof DispatchError)) {
      refusal?.node.standing.failed()
      return outcome
    }
    if (outcome.code === 'node_refused') {
      if (refusal !== null) throw outcome
      refusal = { error: outcome, node: held.lane.node }
    }
    failure = outcome
  }
  throw refusal?.error ?? failure ?? new DispatchError('no_nodes', 'No node of this model is connected')
}

/** A free lane, now or within the wait; null when there is nothing left to try. Rejects when nothing was tried at all. */
async function holdLane(
  { model, signal }: NodeCall,
  tried: ReadonlySet<NodeConnection>,
  {
    index,
    queue,
    limits,
    now,
    failure,
    isConfirming,
  }: DispatchParts & { readonly failure: DispatchError | null; readonly isConfirming: boolean },
): Promise<HeldLane | null> {
  const lane = index.pick(model, tried)
  const slot = lane?.node.slots.acquire() ?? null
  if (lane !== null && slot !== null) return { lane, slot }
  const triedHere = [...tried].filter((node) => node.isConnected()).length
  if (isConfirming || index.connected(model) <= triedHere) return null
  try {
    return await queue.enter({ model, excluded: tried, signal, deadlineMs: now() + limits.waitMs })
  } catch (error) {
    // What went wrong with a node says more than that there was no second one.
    if (failure !== null && error instanceof DispatchError && error.code === 'no_nodes') return null
    throw error
  }
}

/** One attempt: the answer with its first token, or what went wrong with this node. Throws the signal's reason. */
async function attempt(
  { request, signal, accountId, openReader }: NodeCall,
  { frameOf, bytes }: ChatFrame,
  { lane, slot }: HeldLane,
): Promise<NodeAnswer | DispatchError> {
  // The caller may have left in the moment between the waiting and this.
  if (signal.aborted) {
    slot.release()
    throw signal.reason
  }
  const choices = typeof request.n === 'number' ? request.n : 1
  const run = lane.node.start({
    lane,
    frameOf,
    requestBytes: bytes,
    promptTokensMax: promptTokensMax(request, bytes),
    choices,
    slot,
    signal,
    accountId,
    reader: openReader?.() ?? null,
    isProbe: false,
  })
  try {
    await run.firstToken
  } catch (error) {
    if (error instanceof DispatchError && !signal.aborted) return error
    throw signal.aborted ? signal.reason : error
  }
  return { nodeId: lane.node.nodeId, chunks: run.chunks }
}
