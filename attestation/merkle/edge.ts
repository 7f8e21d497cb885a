import { HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { foldSubtrees, hashChildren } from './hash.ts'

/**
 * The right edge of a log: its number of leaves, and the hashes of its perfect subtrees, one for
 * each 1 bit of `size`, largest (leftmost) first. An append needs no other data.
 */
export type Edge = { readonly size: number; readonly hashes: readonly Uint8Array[] }

/**
 * A perfect subtree in a log: 2^level leaves, starting at leaf index × 2^level. Level 0 is a leaf.
 * A perfect subtree never changes, so it can be stored.
 */
export type LogNode = { readonly level: number; readonly index: number; readonly hash: Uint8Array }

export const emptyEdge: Edge = { size: 0, hashes: [] }

/**
 * Appends `leafHashes` (32 bytes each, from hashLeaf). Returns the new edge, and every perfect
 * subtree that became complete, leaves included. Each subtree comes after its two halves. Throws
 * FormatError `invalid_edge`, or `invalid_leaf` for a hash of another length.
 */
export function appendLeaves(
  edge: Edge,
  leafHashes: readonly Uint8Array[],
): { readonly edge: Edge; readonly nodes: readonly LogNode[] } {
  checkEdge(edge)
  const hashes = [...edge.hashes]
  const nodes: LogNode[] = []
  let size = edge.size
  for (const leafHash of leafHashes) {
    if (leafHash.length !== HASH_BYTES)
      throw new FormatError('invalid_leaf', `expected a leaf hash of ${HASH_BYTES} bytes`)
    nodes.push({ level: 0, index: size, hash: leafHash })
    let hash = leafHash
    // Each trailing 1 bit of the old size stands for a subtree that becomes the left half of a
    // larger subtree.
    let index = size
    for (let level = 1; index % 2 === 1; level++) {
      const left = hashes.pop()
      if (left === undefined)
        throw new FormatError('invalid_edge', 'expected one hash for each 1 bit of the size')
      hash = hashChildren(left, hash)
      index = (index - 1) / 2
      nodes.push({ level, index, hash })
    }
    hashes.push(hash)
    size++
  }
  return { edge: { size, hashes }, nodes }
}

/** Merkle root (32 bytes) of the log with this edge, RFC 9162 section 2.1.1. */
export function rootOf(edge: Edge): Uint8Array {
  return foldSubtrees(edge.hashes)
}

function checkEdge(edge: Edge): void {
  if (
    !Number.isSafeInteger(edge.size) ||
    edge.size < 0 ||
    edge.hashes.length !== countOnes(edge.size)
  )
    throw new FormatError('invalid_edge', 'expected one hash for each 1 bit of the size')
  if (edge.hashes.some((hash) => hash.length !== HASH_BYTES))
    throw new FormatError('invalid_edge', `expected hashes of ${HASH_BYTES} bytes`)
}

function countOnes(size: number): number {
  let count = 0
  for (let rest = size; rest > 0; rest = Math.floor(rest / 2)) count += rest % 2
  return count
}
