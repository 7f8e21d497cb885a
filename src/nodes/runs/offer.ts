import { type Speed, UNMEASURED } from './speed.ts'

/** A node with one of its models. The dispatcher sends each call to an offer. */
export type Offer<Node> = {
  readonly node: Node
  readonly model: string
  speed: Speed
  /** Index of this offer among the available offers of its model. -1: not available. */
  position: number
  /** How many of this offer's nodes the index counts as serving the model. */
  counted: number
}

export function openOffer<Node>(node: Node, model: string): Offer<Node> {
  return { node, model, speed: UNMEASURED, position: -1, counted: 0 }
}

export type OfferingNode<Node> = {
  readonly offers: readonly Offer<Node>[]
  readonly slots: Slots
  readonly takesLargeFrames: boolean
  /** Features that some calls need: `remote-media` and dialects (hello.ts). */
  readonly abilities: ReadonlySet<string>
  /** How many nodes this object represents: one, or all nodes of another gateway. */
  readonly nodes: number
  isServing(model: string): boolean
  /** True if the node has a free slot and gets calls for the model. */
  isAvailable(model: string): boolean
}

export type HeldOffer<Node> = { readonly offer: Offer<Node>; readonly slot: NodeSlot }

export type NodeSlot = {
  /** Only the first call has an effect. */
  release(): void
}

export type Slots = {
  readonly capacity: number
  inUse(): number
  acquire(): NodeSlot | null
}

/** Returns how many runs a node gets at the same time, by its video memory (null: unknown). */
export function capacityOf(
  vramMb: number | null,
  limits: { readonly slots: number; readonly slotsLarge: number; readonly largeVramMb: number },
): number {
  return vramMb !== null && vramMb > limits.largeVramMb ? limits.slotsLarge : limits.slots
}

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
