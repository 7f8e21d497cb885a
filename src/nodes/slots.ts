/** The right to run one call on a node. */
export type Slot = {
  /** Gives it back. Only the first time counts. */
  release(): void
}

/** Counts the runs of one node. */
export type Slots = {
  readonly capacity: number
  inUse(): number
  /** Takes a slot, or gives null when all are taken. */
  acquire(): Slot | null
}

/** How many runs a node with so much video memory (megabytes, null when unknown) is given at once. */
export function capacityOf(
  vramMb: number | null,
  limits: { readonly slots: number; readonly slotsLarge: number; readonly largeVramMb: number },
): number {
  return vramMb !== null && vramMb > limits.largeVramMb ? limits.slotsLarge : limits.slots
}

/** Slots of one node. The hooks are told after a slot was taken, and after one was given back. */
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
      const slot: Slot = {
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
