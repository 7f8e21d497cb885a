import fc from 'fast-check'
import { expect, it } from 'vitest'
import { capacityOf, createSlots, type NodeSlot } from '#src/nodes/runs/offer.ts'

const quiet = { onTaken: () => {}, onFreed: () => {} }

it('slots are never more than the capacity, and never fewer than none, whatever is done with them', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 5 }),
      fc.array(fc.oneof(fc.constant('acquire' as const), fc.nat({ max: 20 }))),
      (capacity, steps) => {
        const slots = createSlots(capacity, quiet)
        const taken: NodeSlot[] = []
        const released = new Set<NodeSlot>()
        for (const step of steps) {
          if (step === 'acquire') {
            const slot = slots.acquire()
            expect(slot === null).toBe(taken.length - released.size === capacity)
            if (slot !== null) taken.push(slot)
          } else {
            // Often one that was released before.
            const slot = taken[step]
            slot?.release()
            if (slot !== undefined) released.add(slot)
          }
          expect(slots.inUse()).toBe(taken.length - released.size)
        }
      },
    ),
  )
})

it('slots report every change once', () => {
  const reported: string[] = []
  const slots = createSlots(1, {
    onTaken: () => reported.push('taken'),
    onFreed: () => reported.push('freed'),
  })
  const slot = slots.acquire()
  expect(slots.acquire()).toBeNull()
  slot?.release()
  slot?.release()
  expect(reported).toEqual(['taken', 'freed'])
})

const limits = { slots: 10, slotsLarge: 20, largeVramMb: 80_000 }

it.each([
  [null, 10],
  [0, 10],
  [80_000, 10],
  [80_001, 20],
])('a node with %s MB of memory has %i slots', (vramMb, capacity) => {
  expect(capacityOf(vramMb, limits)).toBe(capacity)
})
