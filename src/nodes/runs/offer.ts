import { type Speed, UNMEASURED } from './speed.ts'

/** One node with one of its models. The dispatcher sends each call to an offer. */
export type Offer<Node> = {
  readonly node: Node
  readonly model: string
  speed: Speed
  /** Index of this offer among the available offers of its model. -1: not available. */
  position: number
  /** How many of this offer's nodes count as serving its model. */
  counted: number
}

/** Creates an offer that is not yet measured and not in an index. */
export function openOffer<Node>(node: Node, model: string): Offer<Node> {
  return { node, model, speed: UNMEASURED, position: -1, counted: 0 }
}

/** The facts and methods by which a node is chosen. */
export type OfferingNode<Node> = {
  readonly offers: readonly Offer<Node>[]
  readonly slots: Slots
  readonly takesLargeFrames: boolean
  /**
   * Features that some calls need: `remote-media` (the node's owner lets its backend fetch
   * addresses that callers send), and dialects.
   */
  readonly abilities: ReadonlySet<string>
  /** How many nodes this object represents: one, or all nodes of another gateway. */
  readonly nodes: number
  /** True if the node gets calls for the model. */
  isServing(model: string): boolean
  /** True if the node can get a call for the model now. */
  isAvailable(model: string): boolean
}

/** An offer, and the slot that was taken on its node. */
export type HeldOffer<Node> = { readonly offer: Offer<Node>; readonly slot: NodeSlot }

/** The right to run one call on a node. */
export type NodeSlot = {
  /** Releases the slot. Only the first call has an effect. */
  release(): void
}

/** Counts the runs of one node. */
export type Slots = {
  readonly capacity: number
  inUse(): number
  /** Takes a slot. Returns null when all slots are taken. */
  acquire(): NodeSlot | null
}

/**
 * Returns how many runs a node gets at the same time, by its video memory (megabytes, null when
 * unknown).
 */
export function capacityOf(
  vramMb: number | null,
  limits: { readonly slots: number; readonly slotsLarge: number; readonly largeVramMb: number },
): number {
  return vramMb !== null && vramMb > limits.largeVramMb ? limits.slotsLarge : limits.slots
}

/** Creates the slots of one node. The hooks are called after a slot was taken or released. */
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
