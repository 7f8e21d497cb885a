import { equalBytes, HASH_BYTES } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import type { TreeHead } from '../tree-head.ts'
import { foldSubtrees, hashChildren, PROOF_HASHES_MAX } from './hash.ts'

/**
 * Verifies that the leaf with this hash is leaf `index` of the log with head `head` (RFC 9162
 * section 2.1.3.2). Returns the index and the size of the log. Throws FormatError `invalid_proof`
 * (index not within the log, path too long or too short, hashes not of 32 bytes), ProofError
 * `not_included` if the path leads to another root.
 *
 * Does NOT prove that anyone signed the root: see verifyTreeHead.
 */
export function verifyInclusion(proof: {
  readonly leafHash: Uint8Array
  readonly index: number
  readonly head: TreeHead
  readonly path: readonly Uint8Array[]
}): { readonly index: number; readonly size: number } {
  const { leafHash, index, head, path } = proof
  checkCount(index)
  checkCount(head.size)
  checkHashes([leafHash, head.root, ...path])
  if (index >= head.size) throw invalidProof('expected an index within the log')
  let position = index
  let last = head.size - 1
  let hash = leafHash
  for (const sibling of path) {
    if (last === 0) throw invalidProof('expected a shorter path')
    if (position % 2 === 1 || position === last) {
      hash = hashChildren(sibling, hash)
      while (position % 2 === 0 && position !== 0) {
        position /= 2
        last = half(last)
      }
    } else hash = hashChildren(hash, sibling)
    position = half(position)
    last = half(last)
  }
  if (last !== 0) throw invalidProof('expected a longer path')
  if (!equalBytes(hash, head.root))
    throw new ProofError('not_included', 'expected the path to lead to the root')
  return { index, size: head.size }
}

/**
 * Verifies that the log of `second` begins with all leaves of the log of `first`, in the same order
 * (RFC 9162 section 2.1.4.2). Returns the number of added leaves. For a first log of size 0, the
 * path is empty. Throws FormatError `invalid_proof` (sizes in the wrong order, path too long or too
 * short, hashes not of 32 bytes), ProofError `inconsistent` if the path leads to another root.
 */
export function verifyConsistency(proof: {
  readonly first: TreeHead
  readonly second: TreeHead
  readonly path: readonly Uint8Array[]
}): { readonly added: number } {
  const { first, second, path } = proof
  checkCount(first.size)
  checkCount(second.size)
  checkHashes([first.root, second.root, ...path])
  if (first.size > second.size) throw invalidProof('expected the first log to be the shorter one')
  if (first.size === 0) requireRoot(foldSubtrees([]), first.root)
  if (second.size === 0) requireRoot(foldSubtrees([]), second.root)
  if (first.size === 0 || first.size === second.size) {
    if (path.length > 0) throw invalidProof('expected an empty path')
    if (first.size > 0) requireRoot(first.root, second.root)
  } else walkConsistency(first, second, path)
  return { added: second.size - first.size }
}

/** Does steps 2 to 7 of RFC 9162 section 2.1.4.2, for 0 < first.size < second.size. */
function walkConsistency(first: TreeHead, second: TreeHead, path: readonly Uint8Array[]): void {
  // If the first log is one perfect subtree, the proof starts at its root, which the path omits.
  const [start, ...rest] = isPowerOfTwo(first.size) ? [first.root, ...path] : path
  if (start === undefined) throw invalidProof('expected a longer path')
  let position = first.size - 1
  let last = second.size - 1
  while (position % 2 === 1) {
    position = half(position)
    last = half(last)
  }
  let firstHash = start
  let secondHash = start
  for (const sibling of rest) {
    if (last === 0) throw invalidProof('expected a shorter path')
    if (position % 2 === 1 || position === last) {
      firstHash = hashChildren(sibling, firstHash)
      secondHash = hashChildren(sibling, secondHash)
      while (position % 2 === 0 && position !== 0) {
        position /= 2
        last = half(last)
      }
    } else secondHash = hashChildren(secondHash, sibling)
    position = half(position)
    last = half(last)
  }
  if (last !== 0) throw invalidProof('expected a longer path')
  requireRoot(firstHash, first.root)
  requireRoot(secondHash, second.root)
}

function requireRoot(computed: Uint8Array, root: Uint8Array): void {
  if (!equalBytes(computed, root))
    throw new ProofError('inconsistent', 'expected the path to lead to both roots')
}

function checkCount(count: number): void {
  if (!Number.isSafeInteger(count) || count < 0)
    throw invalidProof('expected counts of 0 to 2^53-1')
}

function checkHashes(hashes: readonly Uint8Array[]): void {
  if (hashes.length > PROOF_HASHES_MAX + 2)
    throw invalidProof(`expected at most ${PROOF_HASHES_MAX} hashes`)
  if (hashes.some((hash) => hash.length !== HASH_BYTES))
    throw invalidProof(`expected hashes of ${HASH_BYTES} bytes`)
}

/** The operator >> would cut sizes over 2^31. */
function half(value: number): number {
  return Math.floor(value / 2)
}

function isPowerOfTwo(size: number): boolean {
  let rest = size
  while (rest % 2 === 0) rest /= 2
  return rest === 1
}

function invalidProof(message: string): FormatError {
  return new FormatError('invalid_proof', message)
}
