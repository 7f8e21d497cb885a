import { FormatError } from '../errors.ts'
import { foldSubtrees } from './hash.ts'

/** The position of a perfect subtree in a log (see LogNode). */
export type NodeCoordinate = { readonly level: number; readonly index: number }

/**
 * The perfect subtrees whose hashes foldSubtrees folds into one hash of a proof, leftmost first. A
 * hash needs more than one subtree only at the right edge of the log.
 */
export type ProofNode = readonly NodeCoordinate[]

/**
 * The stored nodes for the inclusion proof of leaf `index` in the log of `size` leaves, in the
 * order of the proof (RFC 9162 section 2.1.3.1). Throws FormatError `invalid_position` unless 0 ≤
 * index < size.
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
 * The stored nodes that prove that the log of `second` leaves continues the log of `first` leaves,
 * in the order of the proof (RFC 9162 section 2.1.4.1). Empty if `first` is 0 or equals `second`.
 * Throws FormatError `invalid_position` unless 0 ≤ first ≤ second.
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
  // A range that starts at 0 is the whole first log, whose root the verifier already has.
  if (start > 0) nodes.push(subtreesOf(start, end))
  return nodes.reverse()
}

/** The perfect subtrees in a log of `size` leaves, largest first: the nodes of its edge. */
export function edgeNodes(size: number): ProofNode {
  checkSize(size)
  return subtreesOf(0, size)
}

/** `hashAt` looks up the hash of a stored node, and may throw. */
export function buildProof(
  nodes: readonly ProofNode[],
  hashAt: (coordinate: NodeCoordinate) => Uint8Array,
): readonly Uint8Array[] {
  return nodes.map((subtrees) => foldSubtrees(subtrees.map(hashAt)))
}

/** The largest power of two below `size` (at least 2): the number of leaves in the left half. */
function splitOf(size: number): number {
  let split = 1
  while (split * 2 < size) split *= 2
  return split
}

/** `end` is exclusive. `start` is a multiple of the largest power of two in the range. */
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
