import { createSlots, type Offer, type OfferingNode, openOffer } from '#src/nodes/runs/offer.ts'

/** A node whose abilities a test changes. */
export interface FreeNode extends OfferingNode<FreeNode> {
  isServingNow: boolean
}

/**
 * A node without a socket; only its offers and slots are used. `onChange` is called for every slot.
 */
export function createFreeNode(
  models: readonly string[],
  capacity: number,
  onChange: (node: FreeNode) => void = () => {},
): FreeNode {
  const changed = () => onChange(node)
  const slots = createSlots(capacity, { onTaken: changed, onFreed: changed })
  const offers: Offer<FreeNode>[] = []
  const node: FreeNode = {
    slots,
    offers,
    takesLargeFrames: false,
    abilities: new Set(),
    nodes: 1,
    isServingNow: true,
    isServing: () => node.isServingNow,
    isAvailable: () => node.isServingNow && slots.inUse() < capacity,
  }
  for (const model of models) offers.push(openOffer(node, model))
  return node
}
