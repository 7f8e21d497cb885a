import { UNMEASURED } from '../../src/nodes/measurements.ts'
import type { NodeConnection } from '../../src/nodes/node-connection.ts'
import type { Lane } from '../../src/nodes/node-index.ts'
import { createSlots } from '../../src/nodes/slots.ts'

/** Changes what a free node says of itself. */
export type FreeNode = NodeConnection & { isServingNow: boolean }

/** A node without a socket, of which only its lanes and slots are looked at. `onChange` is told of every slot. */
export function createFreeNode(
  models: readonly string[],
  capacity: number,
  onChange: (node: NodeConnection) => void = () => {},
): FreeNode {
  const told = () => onChange(node)
  const slots = createSlots(capacity, { onTaken: told, onFreed: told })
  const bare = {
    slots,
    lanes: [] as Lane[],
    isServingNow: true,
    isServing: () => bare.isServingNow,
    isAvailable: () => bare.isServingNow && slots.inUse() < capacity,
  }
  const node = bare as unknown as FreeNode
  for (const model of models)
    bare.lanes.push({ node, model, measurement: UNMEASURED, position: -1, isCounted: false })
  return node
}
