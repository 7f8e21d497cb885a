import { DispatchError } from './dispatcher.ts'
import type { NodeLimits } from './limits.ts'
import type { NodeConnection } from './node-connection.ts'
import type { NodeIndex } from './node-index.ts'
import type { HeldLane, WaitQueue } from './wait-queue.ts'

export type DispatchParts = {
  readonly index: NodeIndex
  readonly queue: WaitQueue
  readonly limits: Pick<NodeLimits, 'retriesMax' | 'waitMs'>
  readonly now: () => number
}

/** What nodes are chosen by. */
type Wanted = {
  readonly model: string
  readonly signal: AbortSignal
  /** Size of a frame that not every node takes; null, or left out, for one that does. */
  readonly largeBytes?: number | null
}

/** Throws the signal's reason, or DispatchError `unsupported_model` when no node ever offered the model. */
export function checkCall({ model, signal }: Wanted, index: Pick<NodeIndex, 'isKnown'>): void {
  signal.throwIfAborted()
  if (!index.isKnown(model)) throw new DispatchError('unsupported_model', 'No node serves this model')
}

/**
 * Gives a call, which was checked, to one node after the other until one answers. `attempt`
 * resolves with the answer, or with what went wrong with its node, and gives the slot back; what it
 * throws ends the call. A node that fails is replaced, `retriesMax` times. One that blames the
 * request is not believed alone while another is free: only when that one blames it too, or none is
 * there, the caller is told so. When the other one answers, nothing is held against the first: its
 * backend may well lack what this request needs.
 */
export async function tryNodes<Answer>(
  wanted: Wanted,
  parts: DispatchParts,
  attempt: (held: HeldLane) => Promise<Answer | DispatchError>,
): Promise<Answer> {
  const tried = new Set<NodeConnection>()
  let failure: DispatchError | null = null
  let refusal: DispatchError | null = null
  while (tried.size <= parts.limits.retriesMax) {
    const held = await holdLane(wanted, tried, { ...parts, failure, isConfirming: refusal !== null })
    if (held === null) break
    tried.add(held.lane.node)
    // The caller may have left in the moment between the waiting and this.
    if (wanted.signal.aborted) {
      held.slot.release()
      throw wanted.signal.reason
    }
    const outcome = await attempt(held)
    if (!(outcome instanceof DispatchError)) return outcome
    if (outcome.code === 'node_busy')
      held.lane.node.restsUntilMs = parts.now() + restSeconds(outcome.retryAfterSeconds) * 1000
    if (outcome.code === 'node_refused') {
      if (refusal !== null) throw outcome
      refusal = outcome
    }
    // Of several failures, the one that says when to come again is told.
    if (failure?.code !== 'node_busy') failure = outcome
  }
  throw refusal ?? failure ?? new DispatchError('no_nodes', 'No node of this model is connected')
}

/** A node whose backend is at its limit, and does not say for how long. */
const REST_SECONDS = 1
/** Longest that a node is asked after others, whatever it says. */
const REST_SECONDS_MAX = 60

function restSeconds(told: number | null): number {
  return Math.min(told ?? REST_SECONDS, REST_SECONDS_MAX)
}

/** A free lane, now or within the wait; null when there is nothing left to try. Rejects when nothing was tried at all. */
async function holdLane(
  { model, signal, largeBytes = null }: Wanted,
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
  const isExcluded = (node: NodeConnection) =>
    tried.has(node) || (largeBytes !== null && !node.hasRoomFor(largeBytes))
  const isResting = (node: NodeConnection) => now() < node.restsUntilMs
  const lane =
    index.pick(model, (node) => isExcluded(node) || isResting(node)) ?? index.pick(model, isExcluded)
  const slot = lane?.node.slots.acquire() ?? null
  if (lane !== null && slot !== null) return { lane, slot }
  const triedHere = [...tried].filter((node) => node.isConnected()).length
  const connected = largeBytes === null ? index.connected(model) : index.connectedLarge(model)
  if (isConfirming || connected <= triedHere) return null
  try {
    return await queue.enter({ model, isExcluded, signal, deadlineMs: now() + limits.waitMs })
  } catch (error) {
    // What went wrong with a node says more than that there was no second one.
    if (failure !== null && error instanceof DispatchError && error.code === 'no_nodes') return null
    throw error
  }
}
