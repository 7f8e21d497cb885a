import { expect, it } from 'vitest'
import { FormatError, ProofError } from '#attestation/errors.ts'
import { hashChildren, hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyConsistency, verifyInclusion } from '#attestation/merkle/verify.ts'
import { nearly } from '../../support/case-table.ts'
import { createReference, exampleLeaves } from './reference.ts'

const COUNT = 140
const leaves = exampleLeaves(COUNT)
const leafHashes = leaves.map(hashLeaf)
const reference = createReference(leaves)

it(`verifyInclusion accepts every leaf of every log up to ${COUNT} leaves`, () => {
  for (let size = 1; size <= COUNT; size++)
    for (let index = 0; index < size; index++) verifyInclusion(inclusion(index, size))
})

it('verifyInclusion says where the leaf is', () => {
  expect(verifyInclusion(inclusion(5, 7))).toEqual({ index: 5, size: 7 })
})

it('verifyInclusion refuses every other leaf, index, size and path length, and any changed hash', () => {
  for (const size of [1, 2, 3, 4, 5, 7, 8, 13, 16, 33])
    for (let index = 0; index < size; index++)
      for (const forged of forgeInclusion(index, size))
        expect(codeOf(() => verifyInclusion(forged))).toMatch(/^(not_included|invalid_proof)$/)
})

it.each([
  ['an index past the log', { index: 7 }],
  ['a negative index', { index: -1 }],
  ['a fractional index', { index: 5.5 }],
  ['an index that is no number', { index: Number.NaN }],
  ['an empty log', { head: { size: 0, root: reference.root(0) } }],
  ['a size that a double does not hold', { head: { size: 2 ** 53, root: reference.root(7) } }],
  ['a short leaf hash', { leafHash: new Uint8Array(31) }],
  ['a short root', { head: { size: 7, root: new Uint8Array(31) } }],
  ['a short hash in the path', { path: [new Uint8Array(31), ...reference.path(5, 7).slice(1)] }],
  ['a path of a thousand hashes', { path: Array.from({ length: 1000 }, () => new Uint8Array(32)) }],
])('verifyInclusion refuses a malformed proof: %s', (_, change) => {
  expect(codeOf(() => verifyInclusion({ ...inclusion(5, 7), ...change }))).toBe('invalid_proof')
})

it('an inner node that is passed off as a leaf one level up is refused', () => {
  const [first, second] = [leafHashes[0] ?? new Uint8Array(), leafHashes[1] ?? new Uint8Array()]
  const forged = {
    ...inclusion(0, 8),
    leafHash: hashChildren(first, second),
    path: reference.path(0, 8).slice(1),
  }
  expect(codeOf(() => verifyInclusion(forged))).toBe('invalid_proof')
})

it('an inclusion path that goes on above the root is refused, even when it leads to the given root', () => {
  const extra = new Uint8Array(32).fill(7)
  for (const size of [1, 2, 5, 8]) {
    const { path, ...valid } = inclusion(0, size)
    const head = { size, root: hashChildren(extra, reference.root(size)) }
    expect(codeOf(() => verifyInclusion({ ...valid, head, path: [...path, extra] }))).toBe(
      'invalid_proof',
    )
  }
})

it('verifyInclusion does not detect a size that does not belong to the root', () => {
  const head = { size: 8, root: reference.root(7) }
  expect(verifyInclusion({ ...inclusion(0, 7), head })).toEqual({ index: 0, size: 8 })
})

it('verifyInclusion does not detect that the root is unsigned', () => {
  const leafHash = hashLeaf(new Uint8Array([1]))
  expect(
    verifyInclusion({ leafHash, index: 0, head: { size: 1, root: leafHash }, path: [] }),
  ).toEqual({
    index: 0,
    size: 1,
  })
})

it(`verifyConsistency accepts every pair of logs up to ${COUNT} leaves`, () => {
  for (let second = 1; second <= COUNT; second++)
    for (let first = 1; first <= second; first++) verifyConsistency(consistency(first, second))
})

it('verifyConsistency says how many leaves were added', () => {
  expect(verifyConsistency(consistency(5, 7))).toEqual({ added: 2 })
})

it('the empty log comes before every log, by an empty path only', () => {
  const proof = {
    first: { size: 0, root: reference.root(0) },
    second: { size: 7, root: reference.root(7) },
  }
  expect(verifyConsistency({ ...proof, path: [] })).toEqual({ added: 7 })
  expect(verifyConsistency({ first: proof.first, second: proof.first, path: [] })).toEqual({
    added: 0,
  })
  expect(codeOf(() => verifyConsistency({ ...proof, path: [reference.root(7)] }))).toBe(
    'invalid_proof',
  )
  expect(
    codeOf(() =>
      verifyConsistency({ ...proof, first: { size: 0, root: reference.root(1) }, path: [] }),
    ),
  ).toBe('inconsistent')
})

it('verifyConsistency refuses every other root and path length, and any swapped or changed hash', () => {
  for (const second of [2, 3, 4, 5, 7, 8, 13, 16, 33])
    for (let first = 1; first <= second; first++)
      for (const forged of forgeConsistency(first, second))
        expect(codeOf(() => verifyConsistency(forged))).toMatch(/^(inconsistent|invalid_proof)$/)
})

it('a consistency path that goes on above the roots is refused, even when it leads to the given roots', () => {
  const extra = new Uint8Array(32).fill(7)
  const above = (size: number) => ({ size, root: hashChildren(extra, reference.root(size)) })
  for (const [first, second] of [
    [1, 2],
    [3, 5],
    [4, 8],
  ] as const) {
    const path = [...reference.consistency(first, second), extra]
    const forged = { first: above(first), second: above(second), path }
    expect(codeOf(() => verifyConsistency(forged))).toBe('invalid_proof')
  }
})

it('verifyConsistency refuses a log that changed, dropped or reordered a leaf', () => {
  const changed = createReference(leaves.with(2, new Uint8Array([9])))
  const reordered = createReference(
    leaves.with(0, leaves[1] ?? new Uint8Array()).with(1, leaves[0] ?? new Uint8Array()),
  )
  const shorter = createReference(leaves.toSpliced(1, 1))
  for (const other of [changed, reordered, shorter])
    for (let second = 5; second < 40; second++) {
      const forged = {
        first: { size: 5, root: reference.root(5) },
        second: { size: second, root: other.root(second) },
        path: other.consistency(5, second),
      }
      expect(codeOf(() => verifyConsistency(forged))).toBe('inconsistent')
    }
})

it.each([
  ['a first log that is longer', { first: { size: 8, root: reference.root(8) } }],
  ['a fractional size', { first: { size: 4.5, root: reference.root(5) } }],
  ['a negative size', { first: { size: -1, root: reference.root(5) } }],
  ['a short root', { first: { size: 5, root: new Uint8Array(31) } }],
  [
    'a short hash in the path',
    { path: [new Uint8Array(31), ...reference.consistency(5, 7).slice(1)] },
  ],
  ['a path of a thousand hashes', { path: Array.from({ length: 1000 }, () => new Uint8Array(32)) }],
  ['no path', { path: [] }],
])('verifyConsistency refuses a malformed proof: %s', (_, change) => {
  expect(codeOf(() => verifyConsistency({ ...consistency(5, 7), ...change }))).toBe('invalid_proof')
})

type Inclusion = Parameters<typeof verifyInclusion>[0]
type Consistency = Parameters<typeof verifyConsistency>[0]

function inclusion(index: number, size: number): Inclusion {
  return {
    leafHash: leafHashes[index] ?? new Uint8Array(),
    index,
    head: { size, root: reference.root(size) },
    path: reference.path(index, size),
  }
}

function consistency(first: number, second: number): Consistency {
  return {
    first: { size: first, root: reference.root(first) },
    second: { size: second, root: reference.root(second) },
    path: reference.consistency(first, second),
  }
}

function forgeInclusion(index: number, size: number): readonly Inclusion[] {
  const valid = inclusion(index, size)
  const others = Array.from({ length: size }, (_, other) => other).filter(
    (other) => other !== index,
  )
  return [
    ...others.map((other) => ({ ...valid, index: other })),
    ...others.map((other) => ({ ...valid, leafHash: leafHashes[other] ?? new Uint8Array() })),
    ...[size - 1, size + 1].map((other) => ({
      ...valid,
      head: { size: other, root: reference.root(size + 1) },
    })),
    { ...valid, head: { size, root: reference.root(size + 1) } },
    { ...valid, head: { size, root: nearly(valid.head.root) } },
    { ...valid, leafHash: nearly(valid.leafHash) },
    ...forgePaths(valid.path).map((path) => ({ ...valid, path })),
  ]
}

function forgeConsistency(first: number, second: number): readonly Consistency[] {
  const valid = consistency(first, second)
  return [
    { ...valid, first: { size: first, root: reference.root(first - 1) } },
    { ...valid, second: { size: second, root: reference.root(second + 1) } },
    { ...valid, first: { size: first, root: nearly(valid.first.root) } },
    { ...valid, second: { size: second, root: nearly(valid.second.root) } },
    ...forgePaths(valid.path).map((path) => ({ ...valid, path })),
  ]
}

/**
 * Paths near a valid one: cut at either end, extended at either end, two hashes swapped, one bit
 * changed.
 */
function forgePaths(path: readonly Uint8Array[]): readonly (readonly Uint8Array[])[] {
  const extra = new Uint8Array(32).fill(7)
  const cut = path.length > 0 ? [path.slice(1), path.slice(0, -1)] : []
  const swapped = path
    .slice(1)
    .map((hash, index) => path.with(index, hash).with(index + 1, path[index] ?? extra))
  const changed = path.map((hash, index) => path.with(index, hash.with(31, (hash[31] ?? 0) ^ 1)))
  return [...cut, [extra, ...path], [...path, extra], ...swapped, ...changed]
}

function codeOf(run: () => unknown): string | undefined {
  try {
    run()
  } catch (error) {
    if (error instanceof FormatError || error instanceof ProofError) return error.code
    throw error
  }
  return undefined
}
