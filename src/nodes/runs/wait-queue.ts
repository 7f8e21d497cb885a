import { DispatchError } from './dispatch-error.ts'
import type { HeldOffer, Offer, OfferingNode } from './offer.ts'

type Waiting<Node> = {
  readonly model: string
  /** True if the node must not get this call. */
  readonly isExcluded: (node: Node) => boolean
  readonly signal: AbortSignal
  readonly deadlineMs: number
}

/** Serves the callers of each model in order of arrival. */
export type WaitQueue<Node> = {
  /**
   * Rejects with DispatchError `no_nodes` at the deadline or when too many callers wait. Rejects
   * with the reason of an aborted signal. When the promise resolves, the caller owns the slot.
   */
  enter(waiting: Waiting<Node>): Promise<HeldOffer<Node>>
  /** Gives the node's free slots to the callers who have waited longest. */
  offer(node: Node): void
  /** Rejects all callers whose deadline has passed. */
  sweep(nowMs: number): void
  rejectAll(error: DispatchError): void
  size(): number
}

type Waiter<Node> = Waiting<Node> & {
  /** Position in the order of arrival over all models. */
  readonly enteredAs: number
  resolve(held: HeldOffer<Node>): void
  reject(reason: unknown): void
}

/** Each model has its own limit of `waitersMax` callers. */
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

/** `leave` is called when the waiting ends in any way. */
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
