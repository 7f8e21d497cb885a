import { type ChatFrame, chatFrame } from './chat-frame.ts'
import { DispatchError, type NodeAnswer, type NodeCall } from './dispatcher.ts'
import { withKnownMembers } from './known-members.ts'
import type { NodeLimits } from './limits.ts'
import type { NodeConnection } from './node-connection.ts'
import { checkCall, type DispatchParts, tryNodes } from './try-nodes.ts'
import { promptTokensMax } from './usage-claim.ts'
import type { HeldLane } from './wait-queue.ts'

type ChatParts = DispatchParts & {
  readonly limits: Pick<NodeLimits, 'requestBytesMax' | 'largeRequestBytesMax'>
}

/**
 * Dispatcher.dispatch: the call for a node, one after the other until one answers. A node that
 * fails before its first token is replaced (`try-nodes.ts`). Each is sent the members that it
 * takes, and none a frame that is too large for it.
 */
export async function dispatchCall(call: NodeCall, parts: ChatParts): Promise<NodeAnswer> {
  checkCall(call, parts.index)
  const frames = framesOf(call)
  const largeBytes = largeBytesOf(frames.whole, call.model, parts)
  return tryNodes({ ...call, largeBytes }, parts, (held) => attempt(call, frames.for(held.lane.node), held))
}

type Frames = { readonly whole: ChatFrame; readonly for: (node: NodeConnection) => ChatFrame }

/**
 * The frame with every member, and the one with those that every node takes. Each is written once,
 * the second one when it is needed.
 */
function framesOf({ model, request }: NodeCall): Frames {
  const whole = chatFrame(model, request)
  const known = withKnownMembers(request)
  let knownFrame = known === request ? whole : null
  return {
    whole,
    for(node) {
      if (node.takesExtraMembers) return whole
      knownFrame ??= chatFrame(model, known)
      return knownFrame
    },
  }
}

/**
 * Size of a frame that not every node takes; null for one that does. Throws DispatchError when no
 * node of the model does.
 */
function largeBytesOf(
  { frameBytes }: ChatFrame,
  model: string,
  { index, limits: { requestBytesMax, largeRequestBytesMax } }: ChatParts,
): number | null {
  if (frameBytes <= requestBytesMax) return null
  const isTaken = index.connected(model) === 0 || index.connectedLarge(model) > 0
  const bytesMax = isTaken ? largeRequestBytesMax : requestBytesMax
  if (frameBytes > bytesMax)
    throw new DispatchError('request_too_large', `Nodes take requests of at most ${bytesMax} bytes`)
  return frameBytes
}

/** One attempt: the answer with its first token, or what went wrong with this node. Throws the signal's reason. */
async function attempt(
  { request, signal, accountId, openReader }: NodeCall,
  { frameOf, bytes }: ChatFrame,
  { lane, slot }: HeldLane,
): Promise<NodeAnswer | DispatchError> {
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
  return { nodeId: lane.node.nodeId, batches: run.batches }
}
