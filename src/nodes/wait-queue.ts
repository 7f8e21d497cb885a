import { DispatchError } from './dispatcher.ts'
import type { NodeConnection } from './node-connection.ts'
import type { Lane } from './node-index.ts'
import type { Slot } from './slots.ts'

/** A lane, and the slot that is taken on it. */
export type HeldLane = { readonly lane: Lane; readonly slot: Slot }

/** What somebody waits for, and how long. */
export type Waiting = {
  readonly model: string
  /** Asked each time that a node is free. */
  readonly isExcluded: (node: NodeConnection) => boolean
  readonly signal: AbortSignal
  readonly deadlineMs: number
}

/** Callers that wait for a node, first come first served for each model. */
export type WaitQueue = {
  /**
   * Waits for a free node of the model that is not excluded. Rejects with DispatchError `no_nodes`
   * at the deadline or when too many wait, or with the signal's reason. The slot belongs to the
   * caller.
   */
  enter(waiting: Waiting): Promise<HeldLane>
  /** A node may have become free: gives its slots to those who waited longest. */
  offer(node: NodeConnection): void
  /** Ends the waiting of everybody whose deadline has passed. */
  sweep(nowMs: number): void
  /** Ends everybody's waiting. */
  rejectAll(error: DispatchError): void
  size(): number
}

type Waiter = Waiting & {
  /** Number in the order of coming, over all models. */
  readonly enteredAs: number
  /** Ends the waiting; only the first of both counts. */
  resolve(held: HeldLane): void
  reject(reason: unknown): void
}

/** An empty queue that holds at most `waitersMax` callers per model. */
export function createWaitQueue({ waitersMax }: { readonly waitersMax: number }): WaitQueue {
  const queues = new Map<string, Set<Waiter>>()
  let entered = 0

  function leave(waiter: Waiter): void {
    const queue = queues.get(waiter.model)
    queue?.delete(waiter)
    if (queue?.size === 0) queues.delete(waiter.model)
  }

  /** Who of all that this node could serve came first. */
  function firstFor(node: NodeConnection): { readonly waiter: Waiter; readonly lane: Lane } | null {
    let first: { readonly waiter: Waiter; readonly lane: Lane } | null = null
    for (const lane of node.lanes)
      for (const waiter of queues.get(lane.model) ?? [])
        if (!waiter.isExcluded(node)) {
          if (first === null || waiter.enteredAs < first.waiter.enteredAs) first = { waiter, lane }
          break
        }
    return first
  }

  const everybody = () => [...queues.values()].flatMap((queue) => [...queue])

  return {
    enter(waiting) {
      const queue = queues.get(waiting.model) ?? new Set()
      if (waiting.signal.aborted) return Promise.reject(waiting.signal.reason)
      if (queue.size >= waitersMax)
        return Promise.reject(noNodes('Too many calls wait for a node of this model'))
      const { waiter, held } = createWaiter({ ...waiting, enteredAs: entered++ }, leave)
      queues.set(waiting.model, queue.add(waiter))
      return held
    },
    offer(node) {
      while (node.isAvailable()) {
        const first = firstFor(node)
        if (first === null) return
        const slot = node.slots.acquire()
        if (slot === null) return
        first.waiter.resolve({ lane: first.lane, slot })
      }
    },
    sweep(nowMs) {
      if (queues.size === 0) return
      for (const waiter of everybody())
        if (nowMs >= waiter.deadlineMs) waiter.reject(noNodes('No node of this model was free in time'))
    },
    rejectAll(error) {
      for (const waiter of everybody()) waiter.reject(error)
    },
    size: () => everybody().length,
  }
}

function noNodes(message: string): DispatchError {
  return new DispatchError('no_nodes', message)
}

/** A waiter, who leaves by `leave` however the waiting ends. */
function createWaiter(
  waiting: Waiting & { readonly enteredAs: number },
  leave: (waiter: Waiter) => void,
): { readonly waiter: Waiter; readonly held: Promise<HeldLane> } {
  const { promise, resolve, reject } = Promise.withResolvers<HeldLane>()
  const end = () => {
    leave(waiter)
    waiting.signal.removeEventListener('abort', onAbort)
  }
  const waiter: Waiter = {
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
