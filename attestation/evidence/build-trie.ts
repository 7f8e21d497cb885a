import { keccak_256 } from '@noble/hashes/sha3.js'
import { HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { encodeRlp, type RlpItem } from './rlp.ts'
import { BRANCH_ITEMS, indexNibbles } from './trie-proof.ts'

/**
 * The trie of all `entries` of a block (its raw transactions, or its raw receipts, in order) and the nodes from its
 * root to entry `index`, as verifyTrieProof takes them. Compare `root` with the block's header: nothing else shows
 * that the entries are complete. Throws FormatError `invalid_trie_entries` when there is no such entry, or one is
 * below 32 bytes, which no transaction and no receipt is.
 */
export function buildTrieProof(
  entries: readonly Uint8Array[],
  index: number,
): { readonly root: Uint8Array; readonly nodes: readonly Uint8Array[] } {
  if (entries[index] === undefined || entries.some(({ length }) => length < HASH_BYTES))
    throw new FormatError(
      'invalid_trie_entries',
      `expected entries of at least ${HASH_BYTES} bytes, one of them at the index`,
    )
  const leaves = entries.map((value, position) => ({
    nibbles: indexNibbles(position),
    value,
    isProven: position === index,
  }))
  const nodes: Uint8Array[] = []
  const root = hashSubtree(leaves, nodes)
  return { root, nodes: nodes.reverse() }
}

type Leaf = {
  readonly nibbles: readonly number[]
  readonly value: Uint8Array
  readonly isProven: boolean
}

/** Hash of the node over `leaves`. Nodes on the way to the proven one are added to `nodes`, the leaf first. */
function hashSubtree(leaves: readonly Leaf[], nodes: Uint8Array[]): Uint8Array {
  const node = encodeRlp(itemsOf(leaves, nodes))
  if (leaves.some(({ isProven }) => isProven)) nodes.push(node)
  return keccak_256(node)
}

function itemsOf(leaves: readonly Leaf[], nodes: Uint8Array[]): RlpItem {
  const [first] = leaves
  if (first === undefined) return new Uint8Array()
  if (leaves.length === 1) return [encodePath(first.nibbles, true), first.value]
  const shared = sharedLength(leaves, first.nibbles)
  if (shared > 0) {
    const below = hashSubtree(withoutFirst(leaves, shared), nodes)
    return [encodePath(first.nibbles.slice(0, shared), false), below]
  }
  return Array.from({ length: BRANCH_ITEMS }, (_, nibble) => {
    const below = leaves.filter(({ nibbles }) => nibbles[0] === nibble)
    return below.length === 0 ? new Uint8Array() : hashSubtree(withoutFirst(below, 1), nodes)
  })
}

function sharedLength(leaves: readonly Leaf[], path: readonly number[]): number {
  const differing = path.findIndex((nibble, depth) => leaves.some((leaf) => leaf.nibbles[depth] !== nibble))
  return differing < 0 ? path.length : differing
}

function withoutFirst(leaves: readonly Leaf[], count: number): readonly Leaf[] {
  return leaves.map((leaf) => ({ ...leaf, nibbles: leaf.nibbles.slice(count) }))
}

/** Hex-prefix encoding, yellow paper, appendix C. */
function encodePath(nibbles: readonly number[], isLeaf: boolean): Uint8Array {
  const isOdd = nibbles.length % 2 === 1
  const flag = (isLeaf ? 2 : 0) + (isOdd ? 1 : 0)
  const padded = isOdd ? [flag, ...nibbles] : [flag, 0, ...nibbles]
  return Uint8Array.from(
    { length: padded.length / 2 },
    (_, at) => (padded[2 * at] ?? 0) * 16 + (padded[2 * at + 1] ?? 0),
  )
}
