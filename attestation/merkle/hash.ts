import { concatBytes, sha256 } from '../bytes.ts'

/**
 * Maximum number of hashes in a proof: a log has at most 2^53 leaves, and a consistency proof has
 * one hash more than the log has levels.
 */
export const PROOF_HASHES_MAX = 54

/** Hash of a leaf over `data`: SHA-256(0x00 || data), RFC 9162 section 2.1.1. */
export function hashLeaf(data: Uint8Array): Uint8Array {
  return sha256(concatBytes(LEAF_PREFIX, data))
}

/** Hash of an inner node: SHA-256(0x01 || left || right), RFC 9162 section 2.1.1. */
export function hashChildren(left: Uint8Array, right: Uint8Array): Uint8Array {
  return sha256(concatBytes(NODE_PREFIX, left, right))
}

/**
 * The hash over a range of leaves, from the hashes of its perfect subtrees, largest (leftmost)
 * first. Without subtrees: SHA-256 of no bytes, the root of an empty log.
 */
export function foldSubtrees(hashes: readonly Uint8Array[]): Uint8Array {
  const last = hashes.at(-1)
  if (last === undefined) return sha256(new Uint8Array())
  let hash = last
  for (let index = hashes.length - 2; index >= 0; index--) {
    const left = hashes[index]
    if (left !== undefined) hash = hashChildren(left, hash)
  }
  return hash
}

const LEAF_PREFIX = new Uint8Array([0])
const NODE_PREFIX = new Uint8Array([1])
