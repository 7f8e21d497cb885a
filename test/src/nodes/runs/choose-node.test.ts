import fc from 'fast-check'
import { expect, it } from 'vitest'
import { COMPARED_MAX, createNodeIndex } from '#src/nodes/runs/choose-node.ts'
import { createFreeNode, type FreeNode } from '../../../support/free-node.ts'

const NOBODY = () => false

/** Random numbers that are the same in every run: bounds of chance would fail now and then. */
function seeded(): () => number {
  let state = 1
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

function indexed(count: number, { capacity = 10, random = seeded() } = {}) {
  const index = createNodeIndex<FreeNode>({
    random,
    offeredModels: ['offered-before'],
    returnMs: 1_000,
    now: () => 0,
  })
  const nodes = Array.from({ length: count }, () =>
    createFreeNode(['a'], capacity, (node) => index.update(node)),
  )
  for (const node of nodes) index.add(node)
  return { index, nodes }
}

it('picking among few nodes takes the one with the best expected time', () => {
  const { index, nodes } = indexed(COMPARED_MAX)
  const [, , fast] = nodes
  for (const node of nodes)
    for (const offer of node.offers)
      offer.speed = { firstTokenMs: node === fast ? 50 : 500, tokensPerSecond: 50 }
  for (let count = 0; count < 20; count++) expect(index.pick('a', NOBODY)?.node).toBe(fast)
})

it('picking among equal nodes takes the less loaded one', () => {
  const { index, nodes } = indexed(2)
  nodes[0]?.slots.acquire()
  expect(index.pick('a', NOBODY)?.node).toBe(nodes[1])
})

it('picking spreads load evenly over many equal nodes', () => {
  const { index, nodes } = indexed(100)
  for (let count = 0; count < 500; count++) index.pick('a', NOBODY)?.node.slots.acquire()
  const loads = nodes.map(({ slots }) => slots.inUse())
  expect(Math.max(...loads)).toBeLessThanOrEqual(8)
  expect(Math.min(...loads)).toBeGreaterThanOrEqual(2)
})

it.each([1, 2, 5, 50])('picking among %i nodes never takes an excluded node', (count) => {
  const { index, nodes } = indexed(count)
  const excluded = new Set<FreeNode>(nodes.slice(1))
  expect(index.pick('a', (node) => excluded.has(node))?.node).toBe(nodes[0])
  expect(index.pick('a', () => true)).toBeNull()
})

it('picking takes no longer among 10,000 nodes than it may among 10 (looks at two of them)', () => {
  let draws = 0
  const { index } = indexed(10_000, {
    random: () => {
      draws++
      return Math.random()
    },
  })
  index.pick('a', NOBODY)
  expect(draws).toBe(2)
})

it('the index holds exactly the nodes with a free slot, whatever happened', () => {
  const step = fc.record({
    node: fc.nat({ max: 7 }),
    what: fc.constantFrom('acquire', 'release', 'pause', 'resume', 'leave', 'join'),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const { index, nodes } = indexed(8, { capacity: 1 })
      const joined = new Set(nodes)
      const slots = new Map(
        nodes.map((node) => [node, null as ReturnType<typeof node.slots.acquire>]),
      )
      for (const { node: number, what } of steps) {
        const node = nodes[number]
        if (node === undefined) continue
        if (what === 'acquire') slots.set(node, node.slots.acquire() ?? slots.get(node) ?? null)
        if (what === 'release') slots.get(node)?.release()
        if (what === 'pause' || what === 'resume') {
          node.isServingNow = what === 'resume' && joined.has(node)
          index.update(node)
        }
        if (what === 'leave' && joined.delete(node)) {
          node.isServingNow = false
          index.remove(node)
        }
        if (what === 'join' && !joined.has(node)) {
          joined.add(node)
          node.isServingNow = true
          index.add(node)
        }
      }
      const found = new Set<FreeNode>()
      for (;;) {
        const offer = index.pick('a', (node) => found.has(node))
        if (offer === null) break
        found.add(offer.node)
      }
      expect(found).toEqual(new Set(nodes.filter((node) => node.isAvailable('a'))))
      expect(index.connected('a')).toBe(joined.size)
      expect(index.models()[0]?.nodes ?? 0).toBe(nodes.filter((node) => node.isServing('a')).length)
    }),
    { numRuns: 200 },
  )
})

it('the index remembers a model after its last node left, and no longer offers it', () => {
  const { index, nodes } = indexed(1)
  for (const node of nodes) {
    node.isServingNow = false
    index.remove(node)
  }
  expect(index.isKnown('a')).toBe(true)
  expect(index.isKnown('b')).toBe(false)
  expect(index.isKnown('offered-before')).toBe(true)
  expect(index.models()).toEqual([])
  expect(index.connected('a')).toBe(0)
})
