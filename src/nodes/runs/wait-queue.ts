import { DispatchError } from './dispatch-error.ts'
import type { HeldOffer, Offer, OfferingNode } from './offer.ts'

/** A caller's request for a node, and its longest wait. */
type Waiting<Node> = {
  readonly model: string
  /** Called for each node that becomes free. True if the node must not get this call. */
  readonly isExcluded: (node: Node) => boolean
  readonly signal: AbortSignal
  readonly deadlineMs: number
}

/** Callers that wait for a node. For each model, the first caller is served first. */
export type WaitQueue<Node> = {
  /**
   * Waits for a free node of the model that is not excluded. Rejects with DispatchError `no_nodes`
   * at the deadline or when too many callers wait, and with the signal's reason. If it resolves,
   * the caller owns the slot.
   */
  enter(waiting: Waiting<Node>): Promise<HeldOffer<Node>>
  /**
   * Called when a node may have become free. Gives its free slots to the callers who have waited
   * longest.
   */
  offer(node: Node): void
  /** Rejects all waiting callers whose deadline has passed. */
  sweep(nowMs: number): void
  /** Rejects all waiting callers. */
  rejectAll(error: DispatchError): void
  size(): number
}

type Waiter<Node> = Waiting<Node> & {
  /** Position in the order of arrival, counted over all models. */
  readonly enteredAs: number
  /** `resolve` and `reject` end the wait. Only the first call has an effect. */
  resolve(held: HeldOffer<Node>): void
  reject(reason: unknown): void
}

/** Creates an empty queue that accepts at most `waitersMax` callers per model. */
export function createWaitQueue<Node extends OfferingNode<Node>>({
  waitersMax,
}: {
  readonly waitersMax: number
}): WaitQueue<Node> {
  const queues = new Map<string, Set<Waiter<Node>>>()
  let entered = 0

  function leave(waiter: Waiter<Node>): void {
    const queue = queues.get(waiter.model)
    queue?.delete(waiter)
    if (queue?.size === 0) queues.delete(waiter.model)
  }

  /** Returns the first waiting caller that this node could serve. */
  function firstFor(
    node: Node,
  ): { readonly waiter: Waiter<Node>; readonly offer: Offer<Node> } | null {
    let first: { readonly waiter: Waiter<Node>; readonly offer: Offer<Node> } | null = null
    for (const offer of node.offers.filter(({ model }) => node.isAvailable(model)))
      for (const waiter of queues.get(offer.model) ?? [])
        if (!waiter.isExcluded(node)) {
          if (first === null || waiter.enteredAs < first.waiter.enteredAs) first = { waiter, offer }
          break
        }
    return first
  }

  const allWaiters = () => [...queues.values()].flatMap((queue) => [...queue])

  return {
    enter(waiting) {
      const queue = queues.get(waiting.model) ?? new Set()
      if (waiting.signal.aborted) return Promise.reject(waiting.signal.reason)
      if (queue.size >= waitersMax)
        return Promise.reject(noNodes('Too many calls wait for a node with this model'))
      const { waiter, held } = createWaiter({ ...waiting, enteredAs: entered++ }, leave)
      queues.set(waiting.model, queue.add(waiter))
      return held
    },
    offer(node) {
      for (;;) {
        const first = firstFor(node)
        if (first === null) return
        const slot = node.slots.acquire()
        if (slot === null) return
        first.waiter.resolve({ offer: first.offer, slot })
      }
    },
    sweep(nowMs) {
      if (queues.size === 0) return
      for (const waiter of allWaiters())
        if (nowMs >= waiter.deadlineMs)
          waiter.reject(noNodes('No node with this model was free in time'))
    },
    rejectAll(error) {
      for (const waiter of allWaiters()) waiter.reject(error)
    },
    size: () => allWaiters().length,
  }
}

function noNodes(message: string): DispatchError {
  return new DispatchError('no_nodes', message)
}

/** Creates an entry for a waiting caller. `leave` removes it when the waiting ends in any way. */
function createWaiter<Node>(
  waiting: Waiting<Node> & { readonly enteredAs: number },
  leave: (waiter: Waiter<Node>) => void,
): { readonly waiter: Waiter<Node>; readonly held: Promise<HeldOffer<Node>> } {
  const { promise, resolve, reject } = Promise.withResolvers<HeldOffer<Node>>()
  const end = () => {
    leave(waiter)
    waiting.signal.removeEventListener('abort', onAbort)
  }
  const waiter: Waiter<Node> = {
    ...waiting,
    resolve(held) {
      end()
      resolve(held)
    },
    reject(reason) {
      end()
      reject(reason)
    },
  }
  const onAbort = () => waiter.reject(waiting.signal.reason)
  waiting.signal.addEventListener('abort', onAbort)
  return { waiter, held: promise }
}
