import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { FormatError } from '#attestation/errors.ts'
import {
  appendLeaves,
  type Edge,
  emptyEdge,
  type LogNode,
  rootOf,
} from '#attestation/merkle/edge.ts'
import { foldSubtrees, hashChildren, hashLeaf } from '#attestation/merkle/hash.ts'
import { createReference, exampleLeaves } from './reference.ts'

const COUNT = 140
const leaves = exampleLeaves(COUNT)
const leafHashes = leaves.map(hashLeaf)
const reference = createReference(leaves)

it('the edge has the roots of the Certificate Transparency test tree', () => {
  const path = new URL('../../vectors/merkle/roots.json', import.meta.url)
  const vector: { leaves: string[]; roots: string[] } = JSON.parse(readFileSync(path, 'utf8'))
  const roots = vector.roots.map((_, size) => {
    const hashes = vector.leaves.slice(0, size).map((leaf) => hashLeaf(decodeHex(leaf)))
    return encodeHex(rootOf(appendLeaves(emptyEdge, hashes).edge))
  })
  expect(roots).toEqual(vector.roots)
})

it(`the edge has the root that the definition gives, for every size up to ${COUNT}`, () => {
  let edge = emptyEdge
  for (let size = 0; size < COUNT; size++) {
    expect(encodeHex(rootOf(edge))).toBe(encodeHex(reference.root(size)))
    edge = appendLeaves(edge, leafHashes.slice(size, size + 1)).edge
    expect(edge.hashes).toHaveLength((size + 1).toString(2).replaceAll('0', '').length)
  }
})

it('appendLeaves gives the same edge and nodes in whatever batches leaves come', () => {
  const whole = appendLeaves(emptyEdge, leafHashes)
  fc.assert(
    fc.property(fc.array(fc.nat(COUNT)), (cuts) => {
      const places = [0, ...cuts.sort((left, right) => left - right), COUNT]
      const nodes: LogNode[] = []
      let edge: Edge = emptyEdge
      for (const [position, place] of places.entries()) {
        const step = appendLeaves(edge, leafHashes.slice(place, places[position + 1] ?? place))
        edge = step.edge
        nodes.push(...step.nodes)
      }
      expect(edge).toEqual(whole.edge)
      expect(nodes).toEqual(whole.nodes)
    }),
    { numRuns: 20 },
  )
})

it('appendLeaves completes every perfect subtree once, after its halves, with the hash of its halves', () => {
  const { nodes } = appendLeaves(emptyEdge, leafHashes)
  const known = new Map<string, Uint8Array>()
  for (const { level, index, hash } of nodes) {
    expect(known.has(`${level} ${index}`)).toBe(false)
    const left = known.get(`${level - 1} ${2 * index}`)
    const right = known.get(`${level - 1} ${2 * index + 1}`)
    const expected = level === 0 ? leafHashes[index] : left && right && hashChildren(left, right)
    expect(hash).toEqual(expected)
    known.set(`${level} ${index}`, hash)
  }
  for (let level = 0; 2 ** level <= COUNT; level++)
    expect(nodes.filter((node) => node.level === level)).toHaveLength(
      Math.floor(COUNT / 2 ** level),
    )
})

it('the edge goes on from sizes over 2^32, where 32-bit arithmetic would not', () => {
  const hash = new Uint8Array(32).fill(1)
  const size = 2 ** 40 + 3
  const { edge, nodes } = appendLeaves({ size, hashes: [hash, hash, hash] }, [hash])
  expect(edge.size).toBe(2 ** 40 + 4)
  expect(edge.hashes).toHaveLength(2)
  expect(nodes.map(({ level, index }) => [level, index])).toEqual([
    [0, 2 ** 40 + 3],
    [1, 2 ** 39 + 1],
    [2, 2 ** 38],
  ])
})

it('appendLeaves does not change the edge that it was given', () => {
  const before = appendLeaves(emptyEdge, leafHashes.slice(0, 3)).edge
  const copy = structuredClone(before)
  appendLeaves(before, leafHashes.slice(3, 9))
  expect(before).toEqual(copy)
})

it.each<[string, Edge]>([
  ['a hash too few', { size: 3, hashes: [new Uint8Array(32)] }],
  ['a hash too many', { size: 2, hashes: [new Uint8Array(32), new Uint8Array(32)] }],
  ['a short hash', { size: 1, hashes: [new Uint8Array(31)] }],
  ['a negative size', { size: -1, hashes: [] }],
  ['a fractional size', { size: 0.5, hashes: [] }],
  ['a size that a double does not hold', { size: 2 ** 53, hashes: [new Uint8Array(32)] }],
])('an edge with %s is refused', (_, edge) => {
  expect(() => appendLeaves(edge, [])).toThrow(FormatError)
})

it('appendLeaves takes no leaf hash of another length', () => {
  expect(() => appendLeaves(emptyEdge, [new Uint8Array(31)])).toThrow(FormatError)
})

it('a leaf and a node with the same bytes have different hashes', () => {
  const [left, right] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)]
  expect(hashLeaf(new Uint8Array([...left, ...right]))).not.toEqual(hashChildren(left, right))
})

it('the root of no subtrees is the root of the empty log', () => {
  expect(foldSubtrees([])).toEqual(reference.root(0))
})
