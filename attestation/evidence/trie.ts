import { keccak_256 } from '@noble/hashes/sha3.js'
import { equalBytes, HASH_BYTES } from '../bytes.ts'
import { FormatError, ProofError } from '../errors.ts'
import { decodeRlp, encodeRlp, encodeRlpNumber, type RlpItem, rlpBytes, rlpList } from './rlp.ts'

/**
 * Maximum number of nodes of a proof. The longest key has 8 bytes, which are 16 nibbles. Each node
 * except the last uses at least one nibble.
 */
export const TRIE_NODES_MAX = 17

/**
 * Verifies that entry `index` of a block's transactions or receipts is in the trie with `root` (32
 * bytes, from the block's header), and returns the entry. `nodes`: exactly the nodes of the
 * Merkle-Patricia trie from the root to the leaf (Ethereum yellow paper, appendix D), with the key
 * RLP(index). Refuses a node inside a node, because entries have at least 32 bytes. Refuses a
 * branch with a value, because no key is a prefix of another. Throws FormatError `invalid_rlp` and
 * `invalid_trie_proof`. Throws ProofError `wrong_trie_node` if a node does not have the hash in its
 * parent, `not_in_trie` if the nodes lead to another key. Does NOT prove that the header is from a
 * chain.
 */
export function verifyTrieProof(proof: {
  readonly root: Uint8Array
  readonly index: number
  readonly nodes: readonly Uint8Array[]
}): Uint8Array {
  if (!Number.isSafeInteger(proof.index) || proof.index < 0)
    throw invalid('expected an index of 0 to 2^53-1')
  if (proof.nodes.length > TRIE_NODES_MAX) throw invalid(`expected at most ${TRIE_NODES_MAX} nodes`)
  let step: Step = { kind: 'node', hash: proof.root, nibbles: indexNibbles(proof.index) }
  for (const node of proof.nodes) {
    if (step.kind === 'value') throw invalid('expected nothing after the leaf')
    if (!equalBytes(keccak_256(node), step.hash))
      throw new ProofError(
        'wrong_trie_node',
        'expected each node to have the hash that leads to it',
      )
    step = stepThrough(rlpList(decodeRlp(node), 'a trie node'), step.nibbles)
  }
  if (step.kind === 'node') throw invalid('expected the nodes to end with a leaf')
  return step.value
}

/** The path of an entry through its trie: the nibbles of RLP(index). */
function indexNibbles(index: number): readonly number[] {
  return nibblesOf(encodeRlp(encodeRlpNumber(index)))
}

/** The high nibble of each byte comes first. */
function nibblesOf(bytes: Uint8Array): readonly number[] {
  return [...bytes].flatMap((byte) => [byte >> 4, byte & 15])
}

/** Items of a branch: a child for each nibble, and a value. */
const BRANCH_ITEMS = 17

type Step =
  | { readonly kind: 'node'; readonly hash: Uint8Array; readonly nibbles: readonly number[] }
  | { readonly kind: 'value'; readonly value: Uint8Array }

function stepThrough(node: readonly RlpItem[], nibbles: readonly number[]): Step {
  if (node.length === BRANCH_ITEMS) {
    const [nibble, ...rest] = nibbles
    if (nibble === undefined) throw invalid('expected no key to end at a branch')
    if (rlpBytes(node[BRANCH_ITEMS - 1], 'the value of a branch').length > 0)
      throw invalid('expected no value at a branch')
    return { kind: 'node', hash: childHash(node[nibble]), nibbles: rest }
  }
  if (node.length !== 2) throw invalid(`expected a node of 2 or ${BRANCH_ITEMS} items`)
  const { isLeaf, path } = decodePath(rlpBytes(node[0], 'the path of a node'))
  const isOnTheWay = path.every((nibble, depth) => nibble === nibbles[depth])
  if (!isOnTheWay || (isLeaf && path.length !== nibbles.length)) throw notInTrie()
  if (isLeaf) return { kind: 'value', value: rlpBytes(node[1], 'the value of a leaf') }
  if (path.length === 0) throw invalid('expected an extension to extend')
  return { kind: 'node', hash: childHash(node[1]), nibbles: nibbles.slice(path.length) }
}

function childHash(child: RlpItem | undefined): Uint8Array {
  if (child instanceof Uint8Array && child.length === 0) throw notInTrie()
  return rlpBytes(child, 'the child of a node', HASH_BYTES)
}

/**
 * Decodes the hex-prefix encoding, appendix C: a flag nibble (2 leaf, 1 odd), then a zero nibble if
 * the count is even.
 */
function decodePath(bytes: Uint8Array): {
  readonly isLeaf: boolean
  readonly path: readonly number[]
} {
  const [flag, padding, ...rest] = nibblesOf(bytes)
  if (flag === undefined || padding === undefined || flag > 3)
    throw invalid('expected a path in hex-prefix encoding')
  const isOdd = flag % 2 === 1
  if (!isOdd && padding !== 0) throw invalid('expected the padding of a path to be zero')
  return { isLeaf: flag >= 2, path: isOdd ? [padding, ...rest] : rest }
}

function notInTrie(): ProofError {
  return new ProofError('not_in_trie', 'expected the nodes to lead to the entry of this index')
}

function invalid(message: string): FormatError {
  return new FormatError('invalid_trie_proof', message)
}

/**
 * Builds the trie from all `entries` of a block (raw transactions or receipts, in order). Returns
 * its root and the nodes from the root to entry `index`, for verifyTrieProof. Compare `root` with
 * the block's header: only this shows that the entries are complete. Throws FormatError
 * `invalid_trie_entries` if the entry does not exist or has less than 32 bytes (some rollups have
 * such entries).
 */
export function buildTrieProof(
  entries: readonly Uint8Array[],
  index: number,
): { readonly root: Uint8Array; readonly nodes: readonly Uint8Array[] } {
  if ((entries[index]?.length ?? 0) < HASH_BYTES)
    throw new FormatError(
      'invalid_trie_entries',
      `expected an entry of at least ${HASH_BYTES} bytes at the index`,
    )
  const leaves = entries.map((value, position) => ({
    nibbles: indexNibbles(position),
    value,
    isProven: position === index,
  }))
  const nodes: Uint8Array[] = []
  const root = keccak_256(buildSubtree(leaves, nodes).bytes)
  return { root, nodes: nodes.reverse() }
}

type Leaf = {
  readonly nibbles: readonly number[]
  readonly value: Uint8Array
  readonly isProven: boolean
}

/** Adds the nodes above the proven leaf to `nodes`, lowest first. */
function buildSubtree(
  leaves: readonly Leaf[],
  nodes: Uint8Array[],
): { readonly items: RlpItem; readonly bytes: Uint8Array } {
  const items = itemsOf(leaves, nodes)
  const bytes = encodeRlp(items)
  if (leaves.some(({ isProven }) => isProven)) nodes.push(bytes)
  return { items, bytes }
}

/** A parent holds the hash of a node, or the whole node if it is below 32 bytes (appendix D). */
function referTo(leaves: readonly Leaf[], nodes: Uint8Array[]): RlpItem {
  const { items, bytes } = buildSubtree(leaves, nodes)
  return bytes.length < HASH_BYTES ? items : keccak_256(bytes)
}

function itemsOf(leaves: readonly Leaf[], nodes: Uint8Array[]): RlpItem {
  const [first] = leaves
  if (first === undefined) return new Uint8Array()
  if (leaves.length === 1) return [encodePath(first.nibbles, true), first.value]
  const shared = sharedLength(leaves, first.nibbles)
  if (shared > 0) {
    const below = referTo(withoutFirst(leaves, shared), nodes)
    return [encodePath(first.nibbles.slice(0, shared), false), below]
  }
  return Array.from({ length: BRANCH_ITEMS }, (_, nibble) => {
    const below = leaves.filter(({ nibbles }) => nibbles[0] === nibble)
    return below.length === 0 ? new Uint8Array() : referTo(withoutFirst(below, 1), nodes)
  })
}

function sharedLength(leaves: readonly Leaf[], path: readonly number[]): number {
  const differing = path.findIndex((nibble, depth) =>
    leaves.some((leaf) => leaf.nibbles[depth] !== nibble),
  )
  return differing < 0 ? path.length : differing
}

function withoutFirst(leaves: readonly Leaf[], count: number): readonly Leaf[] {
  return leaves.map((leaf) => ({ ...leaf, nibbles: leaf.nibbles.slice(count) }))
}

/** Writes the hex-prefix encoding, yellow paper, appendix C. */
function encodePath(nibbles: readonly number[], isLeaf: boolean): Uint8Array {
  const isOdd = nibbles.length % 2 === 1
  const flag = (isLeaf ? 2 : 0) + (isOdd ? 1 : 0)
  const padded = isOdd ? [flag, ...nibbles] : [flag, 0, ...nibbles]
  return Uint8Array.from(
    { length: padded.length / 2 },
    (_, at) => (padded[2 * at] ?? 0) * 16 + (padded[2 * at + 1] ?? 0),
  )
}
