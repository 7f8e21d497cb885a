import { FormatError } from '../errors.ts'
import { foldSubtrees } from './hash.ts'

/** Where a perfect subtree stands in a log (see LogNode). */
export type NodeCoordinate = { readonly level: number; readonly index: number }

/**
 * One hash of a proof: the perfect subtrees, leftmost first, that its run of leaves consists of.
 * Mostly one; a run that ends at the log's ragged right edge has several, and foldSubtrees over
 * their hashes gives the proof's hash.
 */
export type ProofNode = readonly NodeCoordinate[]

/**
 * The stored nodes that the inclusion proof of leaf `index` in the log of `size` leaves is made of,
 * in the order of the proof (RFC 9162 section 2.1.3.1). Throws FormatError `invalid_position`
 * unless 0 ≤ index < size.
 */
export function inclusionNodes(index: number, size: number): readonly ProofNode[] {
  checkSize(size)
  if (!Number.isSafeInteger(index) || index < 0 || index >= size)
    throw new FormatError('invalid_position', 'expected an index within the log')
  const nodes: ProofNode[] = []
  let start = 0
  let end = size
  while (end - start > 1) {
    const middle = start + splitOf(end - start)
    if (index < middle) {
      nodes.push(subtreesOf(middle, end))
      end = middle
    } else {
      nodes.push(subtreesOf(start, middle))
      start = middle
    }
  }
  return nodes.reverse()
}

/**
 * The stored nodes that the proof is made of that the log of `second` leaves continues the one of
 * `first`, in the order of the proof (RFC 9162 section 2.1.4.1). None when `first` is 0 or equals
 * `second`. Throws FormatError `invalid_position` unless 0 ≤ first ≤ second.
 */
export function consistencyNodes(first: number, second: number): readonly ProofNode[] {
  checkSize(first)
  checkSize(second)
  if (first > second)
    throw new FormatError('invalid_position', 'expected the first log to be the shorter one')
  if (first === 0 || first === second) return []
  const nodes: ProofNode[] = []
  let start = 0
  let end = second
  while (end > first) {
    const middle = start + splitOf(end - start)
    if (first <= middle) {
      nodes.push(subtreesOf(middle, end))
      end = middle
    } else {
      nodes.push(subtreesOf(start, middle))
      start = middle
    }
  }
  // With start 0 the rest is the whole first log, whose root the verifier has.
  if (start > 0) nodes.push(subtreesOf(start, end))
  return nodes.reverse()
}

/**
 * The perfect subtrees that make up a log of `size` leaves, largest first: where its edge's hashes
 * are stored.
 */
export function edgeNodes(size: number): ProofNode {
  checkSize(size)
  return subtreesOf(0, size)
}

/** The proof's hashes, with `hashAt` looking up stored nodes; what it throws passes through. */
export function buildProof(
  nodes: readonly ProofNode[],
  hashAt: (coordinate: NodeCoordinate) => Uint8Array,
): readonly Uint8Array[] {
  return nodes.map((subtrees) => foldSubtrees(subtrees.map(hashAt)))
}

/** The largest power of two below `size` (at least 2): how many leaves the left half has. */
function splitOf(size: number): number {
  let split = 1
  while (split * 2 < size) split *= 2
  return split
}

/**
 * Perfect subtrees of the leaves from `start` to before `end`. `start` is a multiple of the largest
 * power of two within the run, as the splits above make it.
 */
function subtreesOf(start: number, end: number): ProofNode {
  const subtrees: NodeCoordinate[] = []
  let from = start
  while (from < end) {
    let level = 0
    let width = 1
    while (width * 2 <= end - from) {
      width *= 2
      level++
    }
    subtrees.push({ level, index: from / width })
    from += width
  }
  return subtrees
}

function checkSize(size: number): void {
  if (!Number.isSafeInteger(size) || size < 0)
    throw new FormatError('invalid_position', 'expected a log size of 0 to 2^53-1')
}
