import { type ChatFrame, chatFrame } from './chat-frame.ts'
import { DispatchError, type NodeAnswer, type NodeCall } from './dispatcher.ts'
import type { NodeLimits } from './limits.ts'
import { checkCall, type DispatchParts, tryNodes } from './try-nodes.ts'
import { promptTokensMax } from './usage-claim.ts'
import type { HeldLane } from './wait-queue.ts'

/**
 * Dispatcher.dispatch: the call for a node, one after the other until one answers. A node that fails before its first token is
 * replaced (`try-nodes.ts`).
 */
export async function dispatchCall(
  call: NodeCall,
  parts: DispatchParts & { readonly limits: Pick<NodeLimits, 'requestBytesMax'> },
): Promise<NodeAnswer> {
  checkCall(call, parts.index)
  const { requestBytesMax } = parts.limits
  const frame = chatFrame(call.model, call.request)
  if (frame.frameBytes > requestBytesMax)
    throw new DispatchError('request_too_large', `Nodes take requests of at most ${requestBytesMax} bytes`)
  return tryNodes(call, parts, (held) => attempt(call, frame, held))
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
