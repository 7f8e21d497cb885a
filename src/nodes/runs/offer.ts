import { type Speed, UNMEASURED } from './speed.ts'

/** One node with one of its models. Each call is given to an offer. */
export type Offer<Node> = {
  readonly node: Node
  readonly model: string
  speed: Speed
  /** Index of this offer among its model's available offers; -1 when it is not available. */
  position: number
  /** How many nodes this offer adds to the number of nodes that serve its model. */
  counted: number
}

/** Creates an offer that is not measured yet and that no index contains. */
export function openOffer<Node>(node: Node, model: string): Offer<Node> {
  return { node, model, speed: UNMEASURED, position: -1, counted: 0 }
}

/** The facts and methods of a node that are needed to choose it. */
export type OfferingNode<Node> = {
  readonly offers: readonly Offer<Node>[]
  readonly slots: Slots
  readonly takesLargeFrames: boolean
  /** Whether the node's owner lets its backend fetch addresses that callers give. */
  readonly takesRemoteMedia: boolean
  /** How many nodes this object represents. The nodes of another gateway are one object here. */
  readonly nodes: number
  /** Whether the node gets calls for the model. */
  isServing(model: string): boolean
  /** Whether the node can get a call for the model now. */
  isAvailable(model: string): boolean
}

/** An offer, with the slot that was taken on its node. */
export type HeldOffer<Node> = { readonly offer: Offer<Node>; readonly slot: NodeSlot }

/** The right to run one call on a node. */
export type NodeSlot = {
  /** Gives the slot back. Only the first call counts. */
  release(): void
}

/** Counts the runs of one node. */
export type Slots = {
  readonly capacity: number
  inUse(): number
  /** Takes a slot, or gives null when all are taken. */
  acquire(): NodeSlot | null
}

/**
 * How many runs a node gets at the same time, by its video memory (megabytes; null when unknown).
 */
export function capacityOf(
  vramMb: number | null,
  limits: { readonly slots: number; readonly slotsLarge: number; readonly largeVramMb: number },
): number {
  return vramMb !== null && vramMb > limits.largeVramMb ? limits.slotsLarge : limits.slots
}

/**
 * Creates the slots of one node. The hooks are called after a slot was taken, and after a slot was
 * given back.
 */
export function createSlots(
  capacity: number,
  hooks: { readonly onTaken: () => void; readonly onFreed: () => void },
): Slots {
  let inUse = 0
  return {
    capacity,
    inUse: () => inUse,
    acquire() {
      if (inUse >= capacity) return null
      inUse++
      let isReleased = false
      const slot: NodeSlot = {
        release() {
          if (isReleased) return
          isReleased = true
          inUse--
          hooks.onFreed()
        },
      }
      hooks.onTaken()
      return slot
    },
  }
}
