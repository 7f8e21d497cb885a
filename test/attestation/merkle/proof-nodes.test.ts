import fc from 'fast-check'
import { expect, it } from 'vitest'
import { FormatError } from '#attestation/errors.ts'
import { appendLeaves, emptyEdge } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import {
  buildProof,
  consistencyNodes,
  edgeNodes,
  inclusionNodes,
  type NodeCoordinate,
} from '#attestation/merkle/proof-nodes.ts'
import { createReference, exampleLeaves } from './reference.ts'

const COUNT = 140
const leaves = exampleLeaves(COUNT)
const reference = createReference(leaves)
const stored = new Map(
  appendLeaves(emptyEdge, leaves.map(hashLeaf)).nodes.map(({ level, index, hash }) => [
    `${level} ${index}`,
    hash,
  ]),
)

it(`stored nodes give the inclusion path of every leaf of every log up to ${COUNT} leaves`, () => {
  for (let size = 1; size <= COUNT; size++)
    for (let index = 0; index < size; index++)
      expectSame(buildProof(inclusionNodes(index, size), hashAt), reference.path(index, size))
})

it(`stored nodes give the consistency proof of every pair of logs up to ${COUNT} leaves`, () => {
  for (let second = 1; second <= COUNT; second++)
    for (let first = 1; first <= second; first++)
      expectSame(
        buildProof(consistencyNodes(first, second), hashAt),
        reference.consistency(first, second),
      )
})

it('proofs need only nodes that are complete at their size', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2 ** 53 - 1 }),
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (size, part) => {
        const index = Math.min(size - 1, Math.floor(size * part))
        for (const node of [
          ...inclusionNodes(index, size),
          ...consistencyNodes(index, size),
          edgeNodes(size),
        ].flat())
          expect((node.index + 1) * 2 ** node.level).toBeLessThanOrEqual(size)
      },
    ),
  )
})

it('edgeNodes names the nodes of the log’s edge', () => {
  const { edge } = appendLeaves(emptyEdge, leaves.map(hashLeaf))
  expect(edgeNodes(COUNT).map(hashAt)).toEqual(edge.hashes)
  expect(edgeNodes(0)).toEqual([])
})

it.each([
  ['an index past the log', () => inclusionNodes(3, 3)],
  ['an index in an empty log', () => inclusionNodes(0, 0)],
  ['a negative index', () => inclusionNodes(-1, 3)],
  ['a fractional index', () => inclusionNodes(0.5, 3)],
  ['a negative size', () => edgeNodes(-1)],
  ['a size that a double does not hold', () => edgeNodes(2 ** 53)],
  ['a first log that is longer', () => consistencyNodes(4, 3)],
  ['a size that is no number', () => consistencyNodes(Number.NaN, 3)],
])('the nodes of a proof are refused for %s', (_, run) => {
  expect(run).toThrow(FormatError)
})

function hashAt({ level, index }: NodeCoordinate): Uint8Array {
  const hash = stored.get(`${level} ${index}`)
  if (hash === undefined) throw new Error(`no node at ${level} ${index}`)
  return hash
}

/** vitest's own comparison is too slow for hundreds of thousands of hashes. */
function expectSame(actual: readonly Uint8Array[], expected: readonly Uint8Array[]): void {
  const isSame =
    actual.length === expected.length &&
    actual.every((hash, index) => Buffer.compare(hash, expected[index] ?? hash.slice(1)) === 0)
  if (!isSame) expect(actual).toEqual(expected)
}
