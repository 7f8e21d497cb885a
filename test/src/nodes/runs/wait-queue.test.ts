import fc from 'fast-check'
import { expect, it } from 'vitest'
import { DispatchError } from '#src/nodes/runs/dispatch-error.ts'
import type { HeldOffer } from '#src/nodes/runs/offer.ts'
import { createWaitQueue } from '#src/nodes/runs/wait-queue.ts'
import { createFreeNode, type FreeNode } from '../../../support/free-node.ts'

const NOBODY = () => false
const forever = {
  isExcluded: NOBODY,
  signal: new AbortController().signal,
  deadlineMs: Number.MAX_VALUE,
}
const queueOf = (waitersMax = 100) => createWaitQueue<FreeNode>({ waitersMax })

it('a wait queue gives slots to those who came first', async () => {
  const queue = queueOf()
  const order: number[] = []
  const waiting = [1, 2, 3].map((number) =>
    queue.enter({ ...forever, model: 'a' }).then((held) => {
      order.push(number)
      return held
    }),
  )
  const node = createFreeNode(['a'], 2)
  queue.offer(node)
  await Promise.all(waiting.slice(0, 2))
  expect(order).toEqual([1, 2])
  expect(queue.size()).toBe(1)
  const [first] = await Promise.all(waiting.slice(0, 1))
  first?.slot.release()
  queue.offer(node)
  await waiting[2]
  expect(order).toEqual([1, 2, 3])
})

it('a wait queue serves the caller who came first among all models of a node', async () => {
  const queue = queueOf()
  const waiting = ['b', 'a'].map((model) => queue.enter({ ...forever, model }))
  queue.offer(createFreeNode(['a', 'b'], 1))
  expect((await waiting[0])?.offer.model).toBe('b')
  expect(queue.size()).toBe(1)
})

it('a wait queue passes over a caller who has tried the node', async () => {
  const queue = queueOf()
  const node = createFreeNode(['a'], 1)
  void queue
    .enter({ ...forever, model: 'a', isExcluded: (other: FreeNode) => other === node })
    .catch(() => {})
  const second = queue.enter({ ...forever, model: 'a' })
  queue.offer(node)
  expect((await second).offer.node).toBe(node)
  expect(queue.size()).toBe(1)
})

it('a wait queue ends the waiting at the deadline, and not before', async () => {
  const queue = queueOf()
  const waiting = queue.enter({ ...forever, model: 'a', deadlineMs: 100 })
  queue.sweep(99)
  expect(queue.size()).toBe(1)
  queue.sweep(100)
  await expect(waiting).rejects.toMatchObject({ code: 'no_nodes' })
  expect(queue.size()).toBe(0)
})

it('a wait queue refuses beyond its bound, by model', async () => {
  const queue = queueOf(1)
  const first = queue.enter({ ...forever, model: 'a' })
  await expect(queue.enter({ ...forever, model: 'a' })).rejects.toMatchObject({
    code: 'no_nodes',
  })
  const other = queue.enter({ ...forever, model: 'b' })
  expect(queue.size()).toBe(2)
  queue.rejectAll(new DispatchError('stopping', 'stop'))
  await expect(first).rejects.toMatchObject({ code: 'stopping' })
  await expect(other).rejects.toMatchObject({ code: 'stopping' })
})

it('a wait queue does not let a caller in who has left', async () => {
  const queue = queueOf()
  const signal = AbortSignal.abort(new Error('left'))
  await expect(queue.enter({ ...forever, model: 'a', signal })).rejects.toThrow('left')
  expect(queue.size()).toBe(0)
})

it('a wait queue gives every slot once and loses no caller, whatever the order of things', async () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant('enter' as const), model: fc.constantFrom('a', 'b') }),
    fc.record({ kind: fc.constant('abort' as const), who: fc.nat({ max: 30 }) }),
    fc.record({ kind: fc.constant('release' as const), who: fc.nat({ max: 30 }) }),
    fc.record({ kind: fc.constant('offer' as const) }),
    fc.record({ kind: fc.constant('sweep' as const) }),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const queue = queueOf(4)
      const node = createFreeNode(['a', 'b'], 2)
      const aborts: AbortController[] = []
      const held: HeldOffer<FreeNode>[] = []
      let ended = 0
      let nowMs = 0
      for (const { kind, ...what } of steps) {
        nowMs += 10
        if (kind === 'enter' && 'model' in what) {
          const abort = new AbortController()
          aborts.push(abort)
          const waiting = {
            model: what.model,
            isExcluded: NOBODY,
            signal: abort.signal,
            deadlineMs: nowMs + 50,
          }
          void queue.enter(waiting).then(
            (offer) => held.push(offer),
            () => ended++,
          )
        }
        if (kind === 'abort' && 'who' in what) aborts[what.who]?.abort()
        if (kind === 'release' && 'who' in what) held[what.who]?.slot.release()
        if (kind === 'offer') queue.offer(node)
        if (kind === 'sweep') queue.sweep(nowMs)
        await Promise.resolve()
        expect(node.slots.inUse()).toBeLessThanOrEqual(2)
      }
      await new Promise((resolve) => setImmediate(resolve))
      expect(held.length + ended + queue.size()).toBe(aborts.length)
    }),
    { numRuns: 100 },
  )
})
