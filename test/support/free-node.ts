import {
  createSlots,
  type Offer,
  type OfferingNode,
  openOffer,
} from '../../src/nodes/runs/offer.ts'

/** Changes what a free node says of itself. */
export interface FreeNode extends OfferingNode<FreeNode> {
  isServingNow: boolean
}

/**
 * A node without a socket, of which only its offers and slots are looked at. `onChange` is told of
 * every slot.
 */
export function createFreeNode(
  models: readonly string[],
  capacity: number,
  onChange: (node: FreeNode) => void = () => {},
): FreeNode {
  const told = () => onChange(node)
  const slots = createSlots(capacity, { onTaken: told, onFreed: told })
  const offers: Offer<FreeNode>[] = []
  const node: FreeNode = {
    ...{ slots, offers },
    takesLargeFrames: false,
    takesRemoteMedia: false,
    nodes: 1,
    isServingNow: true,
    isServing: () => node.isServingNow,
    isAvailable: () => node.isServingNow && slots.inUse() < capacity,
  }
  for (const model of models) offers.push(openOffer(node, model))
  return node
}
